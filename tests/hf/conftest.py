"""Exported models of the zoo in transformers."""

import os

import pytest

# read when huggingface_hub is imported: nothing here is to be looked for elsewhere
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session", autouse=True)
def hf():
    """The package; importing it takes seconds, which collection does without."""
    pytest.importorskip("transformers", reason="pip install 'fairseq-transnormer[hf]'")
    from fairseq_transnormer import hf

    return hf


@pytest.fixture(scope="session")
def transformers(hf):
    import transformers

    return transformers


@pytest.fixture(scope="session")
def exports(zoo):
    """Tiny untrained models by their architecture; "classifier" and "regression"."""
    return zoo.untrained


@pytest.fixture(scope="session")
def words(zoo):
    """A word-level T1."""
    return zoo.exported["t1"]


@pytest.fixture(scope="session", params=["t1", "pieces"])
def texts(request, zoo):
    """A T1 with words and a T2 with sentencepiece."""
    return zoo.exported[request.param]

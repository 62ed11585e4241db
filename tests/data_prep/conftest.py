"""Small corpora in every form that the tools accept, and how a mistake must end."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.messages import command_refuses

from .small_corpora import article_lines


@pytest.fixture(scope="session")
def articles() -> dict[str, list[str]]:
    """By split. train is long enough to be shared among worker processes."""
    return {
        "train": article_lines(1, 2100),
        "valid": article_lines(2, 60),
        "test": article_lines(3, 80),
    }


@pytest.fixture
def original_files(tmp_path, articles) -> Path:
    """The corpus as wiki.*.tokens files."""
    folder = tmp_path / "original"
    folder.mkdir()
    for split, lines in articles.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def raw_files(original_files) -> Path:
    """The corpus as wiki.*.raw files, without <unk>."""
    for path in original_files.glob("*.tokens"):
        text = path.read_text(encoding="utf-8").replace("<unk>", "Γειά  😀")
        path.with_suffix(".raw").write_text(text, encoding="utf-8")
        path.unlink()
    return original_files


@pytest.fixture
def hub_dataset(articles):
    """The corpus as the Hugging Face hub has it: rows empty or with a newline."""
    import datasets

    splits = {"train": "train", "validation": "valid", "test": "test"}
    return datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict(
                {"text": [f"{x}\n" if x.strip() else "" for x in articles[split]]}
            )
            for name, split in splits.items()
        }
    )


@pytest.fixture(scope="session")
def pretraining_data(tmp_path_factory) -> Path:
    """Binary data of sentencepiece units, as ``data_prep text`` leaves it."""
    from .commands import text

    folder = tmp_path_factory.mktemp("pretraining")
    options = ["--tokenizer", "sentencepiece", "--vocab-size", "320"]
    for seed, split in enumerate(("train", "valid")):
        path = folder / f"{split}.txt"
        path.write_text("\n".join(article_lines(seed, 400)), encoding="utf-8")
        options += [f"--{split}", str(path)]
    assert text([*options, "--dest", str(folder / "data")]) == 0
    return folder / "data"


@pytest.fixture(scope="session")
def model_with_symbols(tmp_path_factory) -> Path:
    """A sentencepiece model as Llama's, which keeps white space, ends of lines, too.

    It has symbols of its user, some of them fairseq's.
    """
    folder = tmp_path_factory.mktemp("model")
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.train(
        sentence_iterator=iter(article_lines(0, 400)),
        model_prefix=str(folder / "own"),
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<pad>", "<mask>", "[SEP]"],
        minloglevel=2,
    )
    return folder / "own.model"


@pytest.fixture(scope="session")
def gpt2_data(tmp_path_factory, gpt2_dir) -> Path:
    """dict.txt beside GPT-2's files, as ``data_prep wikitext103 blm`` leaves them."""
    from data_prep.folders.binary_folder import gpt2_dictionary

    folder = tmp_path_factory.mktemp("blm")
    gpt2_dictionary().save(str(folder / "dict.txt"))
    for name in ("encoder.json", "vocab.bpe"):
        (folder / name).write_bytes((gpt2_dir / name).read_bytes())
    return folder


def write_texts(folder: Path) -> dict[str, Path]:
    paths = {}
    for seed, split in enumerate(("train", "valid", "test")):
        paths[split] = folder / f"{split}.txt"
        lines = article_lines(seed, 400 if split == "train" else 40)
        paths[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


@pytest.fixture
def text_files(tmp_path) -> dict[str, Path]:
    """One plain text file for each split."""
    return write_texts(tmp_path)


@pytest.fixture(scope="session")
def words_of_texts(tmp_path_factory) -> Path:
    from .commands import text

    folder = tmp_path_factory.mktemp("words")
    options = ["--dest", folder / "data", "--tokenizer", "word"]
    for split, path in write_texts(folder).items():
        options += [f"--{split}", path]
    assert text([*map(str, options)]) == 0
    return folder / "data"


@pytest.fixture
def word_folder(tmp_path, words_of_texts) -> Path:
    """Binary data by words of ``text_files``."""
    return shutil.copytree(words_of_texts, tmp_path / "words")


@pytest.fixture
def waits(tmp_path, monkeypatch) -> list[float]:
    """The seconds that would be waited for a network; no download is cached yet."""
    monkeypatch.setenv("FAIRSEQ_TRANSNORMER_CACHE", str(tmp_path / "cache"))
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture
def fails(capsys) -> Callable:
    """Runs a command that must end in one message, and must not make ``dest``.

    alone: nothing else is printed; above argparse's message stands its usage.
    """

    def run(
        main: Callable[[list[str]], int],
        arguments: list,
        *parts: object,
        dest: Path | None = None,
        code: int = 2,
        alone: bool = True,
    ) -> str:
        parts = ("error", *parts)
        told = command_refuses(main, arguments, capsys, *parts, code=code, alone=alone)
        assert dest is None or not dest.exists()
        return told

    return run

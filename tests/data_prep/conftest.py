"""Small corpora in every form that the tools accept, and how a mistake must end."""

import time
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from tests.messages import command_refuses

from .small_corpora import article_lines


@pytest.fixture(scope="session")
def articles() -> dict[str, list[str]]:
    """By split. train is long enough to be shared among worker processes."""
    return {
        "train": article_lines(1, 4500),
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


def hub_rows(lines):
    """Rows as the hub has them: empty, or with a newline at the end."""
    rows = [f"{line}\n" if line.strip() else "" for line in lines]
    return datasets.Dataset.from_dict({"text": rows})


@pytest.fixture
def hub_dataset(articles) -> datasets.DatasetDict:
    """The corpus as the Hugging Face hub has it."""
    return datasets.DatasetDict(
        train=hub_rows(articles["train"]),
        validation=hub_rows(articles["valid"]),
        test=hub_rows(articles["test"]),
    )


@pytest.fixture(scope="session")
def pretraining_data(tmp_path_factory) -> Path:
    """Binary data of sentencepiece units, as ``data_prep text`` leaves it."""
    from data_prep.own_text import text

    folder = tmp_path_factory.mktemp("pretraining")
    options = ["--tokenizer", "sentencepiece", "--vocab-size", "320"]
    for seed, split in enumerate(("train", "valid")):
        path = folder / f"{split}.txt"
        path.write_text("\n".join(article_lines(seed, 400)), encoding="utf-8")
        options += [f"--{split}", str(path)]
    assert text.main([*options, "--dest", str(folder / "data")]) == 0
    return folder / "data"


@pytest.fixture(scope="session")
def model_with_symbols(tmp_path_factory) -> Path:
    """A sentencepiece model with symbols of its user, some of them fairseq's."""
    folder = tmp_path_factory.mktemp("model")
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.train(
        sentence_iterator=iter(article_lines(0, 400)),
        model_prefix=str(folder / "own"),
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=True,
        user_defined_symbols=["<pad>", "<mask>", "[SEP]"],
        minloglevel=2,
    )
    return folder / "own.model"


@pytest.fixture(scope="session")
def gpt2_data(tmp_path_factory, gpt2_dir) -> Path:
    """dict.txt beside GPT-2's files, as ``data_prep wikitext103 blm`` leaves them."""
    from data_prep.folders.fairseq_format import gpt2_dictionary

    folder = tmp_path_factory.mktemp("blm")
    gpt2_dictionary().save(str(folder / "dict.txt"))
    for name in ("encoder.json", "vocab.bpe"):
        (folder / name).write_bytes((gpt2_dir / name).read_bytes())
    return folder


@pytest.fixture
def text_files(tmp_path) -> dict[str, Path]:
    """One plain text file for each split."""
    paths = {}
    for seed, split in enumerate(("train", "valid", "test")):
        paths[split] = tmp_path / f"{split}.txt"
        lines = article_lines(seed, 400 if split == "train" else 40)
        paths[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


@pytest.fixture
def word_folder(tmp_path, text_files) -> Path:
    """Binary data by words."""
    from data_prep.own_text import text

    dest = tmp_path / "words"
    code = text.main(
        [
            "--dest",
            str(dest),
            "--tokenizer",
            "word",
            "--train",
            str(text_files["train"]),
        ]
        + ["--valid", str(text_files["valid"]), "--test", str(text_files["test"])]
    )
    assert code == 0
    return dest


@pytest.fixture
def waits(tmp_path, monkeypatch) -> list[float]:
    """The seconds that would be waited for a network; no download is cached yet."""
    monkeypatch.setenv("FAIRSEQ_TRANSNORMER_CACHE", str(tmp_path / "cache"))
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture
def fails(capsys) -> Callable:
    """Runs a command that must end in one message alone, and must not make ``dest``."""

    def run(
        main: Callable[[list[str]], int],
        arguments: list,
        *parts: object,
        dest: Path | None = None,
        code: int = 2,
    ) -> str:
        parts = ("error", *parts)
        told = command_refuses(main, arguments, capsys, *parts, code=code, alone=True)
        assert dest is None or not dest.exists()
        return told

    return run


@pytest.fixture
def refuses(capsys) -> Callable:
    """Runs a command whose options argparse must refuse."""

    def run(main: Callable[[list[str]], int], arguments: list, *parts: object) -> None:
        command_refuses(main, arguments, capsys, *parts)

    return run

"""Binary folders read back through fairseq's classes, or made by its own command."""

from pathlib import Path

from fairseq import options
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq_cli import preprocess

from data_prep.folders.encoders import SentencepieceEncoder
from fairseq_transnormer.data import SPLITS


def read_ids(folder: Path, split: str) -> list[list[int]]:
    """The token ids of each line."""
    dataset = MMapIndexedDataset(str(folder / split))
    return [dataset[line].tolist() for line in range(len(dataset))]


def read_dictionary(folder: Path) -> Dictionary:
    """The folder's dictionary."""
    return Dictionary.load(str(folder / "dict.txt"))


def read_text(folder: Path, split: str) -> list[str]:
    """The symbols of each line, joined with spaces."""
    dictionary = read_dictionary(folder)
    dataset = MMapIndexedDataset(str(folder / split))
    return [dictionary.string(dataset[line]) for line in range(len(dataset))]


def preprocessed(folder: Path, paths: dict[str, Path], *more: str) -> Path:
    """What fairseq-preprocess --only-source makes of the splits' files."""
    words = ["--only-source", "--destdir", str(folder), *more]
    for split, path in paths.items():
        words += [f"--{split}pref", str(path)]
    preprocess.main(options.get_preprocessing_parser().parse_args(words))
    return folder


def differing(one: Path, other: Path) -> list[str]:
    """The files of dictionary and splits that are not equal byte for byte."""
    names = [f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")]
    return [
        name
        for name in ("dict.txt", *names)
        if (one / name).read_bytes() != (other / name).read_bytes()
    ]


def encoder_of(folder: Path) -> SentencepieceEncoder:
    """The encoder of a folder of sentencepiece units."""
    model = folder / "sentencepiece.bpe.model"
    return SentencepieceEncoder(model, read_dictionary(folder).indices)

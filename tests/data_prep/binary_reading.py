"""Reading binary folders back through fairseq's own classes."""

from pathlib import Path

from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

from data_prep.folders.encoders import SentencepieceEncoder


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


def encoder_of(folder: Path) -> SentencepieceEncoder:
    """The encoder of a folder of sentencepiece units."""
    model = folder / "sentencepiece.bpe.model"
    return SentencepieceEncoder(model, read_dictionary(folder).indices)

"""The subword units that a model was pre-trained with, found again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.subword_files import (
    DICTIONARY,
    GPT2_SIZE,
    GPT2_UNITS,
    SENTENCEPIECE_MODEL,
    dictionary_folder,
    find_subword_files,
    pieces_of,
)

from ..folders.binary_folder import Encoder, load_dictionary
from ..folders.downloads import require_sha256
from ..folders.encoders import GPT2_SHA256, Gpt2Encoder, SentencepieceEncoder
from ..folders.options import MaybeDirectory, at_least

DEFAULT_MAX_POSITIONS = 512
MIN_POSITIONS = 8  # four special symbols, and at least two tokens of each text
PRETRAINING_TASK = "masked_lm"
PADDING_SYMBOL = "madeupword"  # fairseq's, with a number: no text gives it


@dataclass(frozen=True)
class Pretrained:
    """The model that is to be tuned."""

    checkpoint: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """the pre-trained model: its dictionary, subword units and longest input"""
    data: MaybeDirectory = None
    """pre-training data: dict.txt and subword files; None: where the checkpoint says"""
    bpe_dir: MaybeDirectory = None
    """folder of the subword files; None: that of dict.txt, or of the checkpoint"""
    max_positions: int | None = None
    """longest input in tokens, with special ones; None: the checkpoint's, or 512"""


@dataclass(frozen=True)
class Subword:
    """Units and dictionary, with the longest input of the model they belong to.

    ``kind`` is gpt2 or sentencepiece; ``files`` are copied beside the data.
    """

    kind: str
    dictionary_path: Path
    files: list[Path]
    dictionary: Any
    encoder: Encoder
    max_positions: int

    def record(self) -> dict[str, Any]:
        """For the settings and report.json: what it is, without where it lies."""
        return {
            "kind": self.kind,
            "dictionary_size": len(self.dictionary),
            "sha256": {
                path.name: file_sha256(path)
                for path in [self.dictionary_path, *self.files]
            },
        }


def find_subword(pretrained: Pretrained) -> Subword:
    """The units of a model.

    Raises ValueError where a file is missing or does not agree with another.
    """
    at_least(MIN_POSITIONS, max_positions=pretrained.max_positions)
    if pretrained.checkpoint is not None:
        return _of_checkpoint(pretrained, pretrained.checkpoint)
    if pretrained.data is None:
        raise ValueError("give --checkpoint FILE or --data DIR: text must be encoded")
    places = [pretrained.bpe_dir or pretrained.data]
    positions = pretrained.max_positions or DEFAULT_MAX_POSITIONS
    return _subword(pretrained.data / DICTIONARY, places, positions)


def _of_checkpoint(pretrained: Pretrained, path: Path) -> Subword:
    # torch: seconds that only this option should cost
    from fairseq_transnormer.checkpoints import identity
    from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint

    checkpoint = PretrainedCheckpoint.read(path)
    longest = checkpoint.model.get("max_positions")
    if checkpoint.task != PRETRAINING_TASK or longest is None:
        raise ValueError(
            f"{path}: a checkpoint of task {checkpoint.task!r}; allowed is "
            f"{PRETRAINING_TASK!r}, a pre-trained bidirectional model"
        )
    positions = pretrained.max_positions or longest
    if positions > longest:
        raise ValueError(
            f"--max-positions must be up to {longest} for {path}, got {positions}"
        )
    folder = dictionary_folder(path, checkpoint.data, pretrained.data)
    places = [pretrained.bpe_dir] if pretrained.bpe_dir else [folder, path.parent]
    subword = _subword(folder / DICTIONARY, places, positions)
    # masked_lm adds <mask> after what dict.txt has
    rows = checkpoint.vocabulary - 1
    if rows != len(subword.dictionary):
        raise ValueError(
            f"{subword.dictionary_path} must have {rows} entries for {path}, the "
            f"dictionary that it was trained with (--data), got "
            f"{len(subword.dictionary)}"
        )
    saved = {identity.KEY: checkpoint.dictionary}
    identity.check_dictionary(saved, subword.dictionary, path)
    identity.check_units(
        checkpoint.units, subword.files, subword.dictionary, folder, path
    )
    return subword


def _subword(path: Path, places: list[Path], positions: int) -> Subword:
    """The units in one of ``places`` that the dict.txt ``path`` is of."""
    dictionary = load_dictionary(path)
    files = list(find_subword_files(places))
    if not files:
        raise ValueError(
            f"{' and '.join(map(str, places))}: neither {SENTENCEPIECE_MODEL} nor "
            f"{' with '.join(GPT2_UNITS)}; name the folder of the subword files that "
            "the model was trained with (--bpe-dir)"
        )
    encoder: Encoder
    if len(files) == 1:
        kind, units = "sentencepiece", {*pieces_of(files[0])}
        encoder = SentencepieceEncoder(files[0], dictionary.indices)
    else:
        for file in files:
            require_sha256(file, GPT2_SHA256[file.name])
        kind, units = "gpt2", set(map(str, range(GPT2_SIZE)))
        encoder = Gpt2Encoder(files[0].parent, dictionary.indices)
    foreign = [
        symbol
        for symbol in dictionary.symbols[dictionary.nspecial :]
        if symbol not in units and not symbol.startswith(PADDING_SYMBOL)
    ]
    if foreign:
        raise ValueError(
            f"{path}: does not agree with the subword files: {len(foreign):,} entries, "
            f"{foreign[0]!r} the first, are no unit of {files[0]}"
        )
    return Subword(kind, path, files, dictionary, encoder, positions)

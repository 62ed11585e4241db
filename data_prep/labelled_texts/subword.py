"""The subword units that a model was pre-trained with, found again."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.folders.binary_folder import Encoder
from data_prep.folders.checksum import require_sha256
from data_prep.folders.encoders import (
    GPT2_SHA256,
    Gpt2Encoder,
    SentencepieceEncoder,
)
from data_prep.folders.errors import InputError
from data_prep.folders.fairseq_format import gpt2_dictionary, load_dictionary
from data_prep.folders.sentencepiece_model import load_model
from fairseq_transnormer.argument_types import integer_between
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.subword_files import (
    DICTIONARY,
    GPT2_SIZE,
    GPT2_UNITS,
    SENTENCEPIECE_MODEL,
    dictionary_folder,
    find_subword_files,
)

DEFAULT_MAX_POSITIONS = 512
MIN_POSITIONS = 8  # four special symbols, and at least two tokens of each text
MAX_POSITIONS = 1_000_000
PRETRAINING_TASK = "masked_lm"
PADDING_SYMBOL = "madeupword"  # fairseq's, with a number: no text gives it


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


def add_subword_options(parser: argparse.ArgumentParser) -> None:
    """``--checkpoint``, ``--data``, ``--bpe-dir`` and ``--max-positions``."""
    add = parser.add_argument
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="the pre-trained model: its dictionary, subword units and longest input",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="the pre-training data (dict.txt and the subword files), if there is no "
        "checkpoint yet or if it does not lie where the checkpoint says",
    )
    add(
        "--bpe-dir",
        type=Path,
        metavar="DIR",
        help=f"folder with {' and '.join(GPT2_UNITS)}, or with {SENTENCEPIECE_MODEL} "
        "(default: that of dict.txt, or of the checkpoint)",
    )
    add(
        "--max-positions",
        type=integer_between(MIN_POSITIONS, MAX_POSITIONS),
        metavar="N",
        help="longest input in tokens, all special ones counted; longer ones are cut, "
        f"longest first (default: the checkpoint's, or {DEFAULT_MAX_POSITIONS})",
    )


def find_subword(options: argparse.Namespace) -> Subword:
    """What the options of ``add_subword_options`` name.

    Raises InputError where a file is missing or does not agree with another.
    """
    if options.checkpoint is None and options.data is None:
        raise InputError("give --checkpoint FILE or --data DIR: text must be encoded")
    if options.checkpoint is None:
        folder, rows, longest, identity, saved = options.data, None, None, None, {}
    else:
        folder, rows, longest, identity, saved = _of_checkpoint(
            options.checkpoint, options.data
        )
    path = folder / DICTIONARY
    dictionary = load_dictionary(path)
    # masked_lm adds <mask> after what dict.txt has
    if rows is not None and rows != len(dictionary) + 1:
        raise InputError(
            f"{path}: {len(dictionary)} entries; allowed for {options.checkpoint}: "
            f"{rows - 1}, the dictionary that it was trained with (--data)"
        )
    if options.checkpoint is not None:
        _check_identity(identity, dictionary, options.checkpoint, path)
    places = [options.bpe_dir] if options.bpe_dir else [folder]
    if options.checkpoint and not options.bpe_dir:
        places.append(options.checkpoint.parent)
    positions = options.max_positions or longest or DEFAULT_MAX_POSITIONS
    if longest and positions > longest:
        raise InputError(
            f"--max-positions {positions}: allowed for {options.checkpoint}: 1 to "
            f"{longest}"
        )
    if positions < MIN_POSITIONS:
        raise InputError(
            f"--max-positions {positions}: allowed are integers from {MIN_POSITIONS}"
        )
    kind, files, encoder = _units(path, dictionary, places)
    if options.checkpoint is not None:
        _check_units(saved, files, dictionary, options.checkpoint, folder)
    return Subword(kind, path, files, dictionary, encoder, positions)


def _of_checkpoint(
    path: Path, data: Path | None
) -> tuple[Path, int, int, str | None, Any]:
    """The folder of dict.txt; of the checkpoint the embedding's rows, the longest
    input, the dictionary's identity and the hashes of its subword files."""
    # torch: seconds that only this option should cost
    from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint

    try:
        checkpoint = PretrainedCheckpoint.read(path)
        if checkpoint.task != PRETRAINING_TASK:
            raise ValueError(
                f"{path}: a checkpoint of task {checkpoint.task!r}; allowed is "
                f"{PRETRAINING_TASK!r}, a pre-trained bidirectional model"
            )
        longest = checkpoint.model.get("max_positions")
        if longest is None:
            raise ValueError(
                f"{path}: a model without max_positions; allowed are this package's "
                "bidirectional models"
            )
        folder = dictionary_folder(path, checkpoint.data, data)
    except ValueError as error:
        raise InputError(str(error)) from error
    identity, units = checkpoint.dictionary, checkpoint.units
    return folder, checkpoint.vocabulary, longest, identity, units


def _check_identity(
    identity: str | None, dictionary: Any, checkpoint: Path, path: Path
) -> None:
    from fairseq_transnormer.checkpoints.identity import KEY, check_dictionary

    try:
        check_dictionary({KEY: identity}, dictionary, checkpoint)
    except ValueError as error:
        raise InputError(f"{path}: {error} (--data)") from error


def _check_units(
    saved: Any, files: list[Path], dictionary: Any, checkpoint: Path, folder: Path
) -> None:
    from fairseq_transnormer.checkpoints.identity import check_units

    try:
        check_units(saved, files, dictionary, folder, checkpoint)
    except ValueError as error:
        raise InputError(f"{error} (--bpe-dir)") from error


def _units(
    path: Path, dictionary: Any, places: list[Path]
) -> tuple[str, list[Path], Encoder]:
    try:
        files = list(find_subword_files(places))
    except ValueError as error:
        raise InputError(str(error)) from error
    if not files:
        raise InputError(
            f"{' and '.join(map(str, places))}: neither {SENTENCEPIECE_MODEL} nor "
            f"{' with '.join(GPT2_UNITS)}; name the folder of the subword files that "
            "the model was trained with (--bpe-dir)"
        )
    if len(files) == 1:
        _require_pieces(path, dictionary, files[0])
        encoder = SentencepieceEncoder(files[0], dictionary.indices)
        return "sentencepiece", files, encoder
    for file in files:
        require_sha256(file, GPT2_SHA256[file.name])
    return "gpt2", files, _gpt2(path, dictionary, files[0].parent)


def _require_pieces(path: Path, dictionary: Any, model: Path) -> None:
    units = load_model(model)
    pieces = {units.id_to_piece(piece) for piece in range(units.get_piece_size())}
    _require_known(path, dictionary, pieces, f"a piece of {model}")


def _gpt2(path: Path, dictionary: Any, folder: Path) -> Gpt2Encoder:
    _require_known(path, dictionary, set(map(str, range(GPT2_SIZE))), "an id of GPT-2")
    if dictionary == gpt2_dictionary():
        return Gpt2Encoder(folder)
    return Gpt2Encoder(folder, dictionary.indices)


def _require_known(path: Path, dictionary: Any, units: set[str], what: str) -> None:
    foreign = [
        symbol
        for symbol in dictionary.symbols[dictionary.nspecial :]
        if symbol not in units and not symbol.startswith(PADDING_SYMBOL)
    ]
    if foreign:
        raise InputError(
            f"{path}: does not agree with the subword files: {len(foreign):,} entries, "
            f"{foreign[0]!r} the first, are not {what}"
        )

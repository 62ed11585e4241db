"""Files of dictionaries and subword units: their names, and where they are found."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .fingerprints import file_fingerprint

DICTIONARY = "dict.txt"
# fairseq's from_pretrained looks for this name beside a checkpoint
SENTENCEPIECE_MODEL = "sentencepiece.bpe.model"
GPT2_UNITS = ("encoder.json", "vocab.bpe")
# fairseq's flag of a line of dict.txt whose symbol stands in an earlier one
OVERWRITE = " #fairseq:overwrite"
# how sentencepiece spells the space before a word
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
GPT2_SIZE = 50257

# fairseq puts these in front of every dictionary
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(len(SPECIAL))
# masked_lm and sentence_prediction append it to the dictionary of their data
MASK = "<mask>"
# words of no text: as tokens they would begin, end, pad or mask it
RESERVED = ("<s>", "<pad>", "</s>", MASK)

_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def dictionary_sha256(symbols: Sequence[str], special: int = len(SPECIAL)) -> str:
    """SHA-256 of a dictionary's symbols in their order, in hexadecimal.

    Args:
        symbols: of tokens 0, 1, ...; a ``<mask>`` after all others is left out, since
            some tasks append it and dict.txt does not have it.
        special: how many of them fairseq put in front of those of dict.txt.
    """
    symbols = list(symbols)
    if symbols and symbols[-1] == MASK:
        symbols.pop()
    content = json.dumps([special, symbols], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def read_dictionary(path: Path) -> list[str]:
    """The symbols of a dict.txt, "SYMBOL COUNT" a line, without fairseq's special ones.

    Raises:
        ValueError: it is not UTF-8, or a line is none of these. Or a line has, without
            fairseq's flag for that, an earlier line's symbol or a special one.
    """
    # str.splitlines would also cut at U+0085 and U+2028, which symbols may have
    try:
        with path.open(encoding="utf-8") as file:  # a symbol may begin with U+FEFF
            lines = [line.rstrip() for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}") from error
    symbols, known = [], set(SPECIAL)
    for line in lines:
        entry = line.removesuffix(OVERWRITE)
        symbol, _, count = entry.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise ValueError(f"{path} must have SYMBOL COUNT, got {line[:80]!r}")
        if symbol in known and entry == line:
            raise ValueError(
                f"{path}: {symbol[:80]!r} twice, without {OVERWRITE.strip()}"
            )
        known.add(symbol)
        symbols.append(symbol)
    return symbols


def dictionary_symbols(folder: Path) -> list[str]:
    """The symbols of a folder's dict.txt, after fairseq's special ones."""
    return [*SPECIAL, *read_dictionary(folder / DICTIONARY)]


def dictionary_folder(
    checkpoint: Path, trained_on: str | None, data: str | Path | None = None
) -> Path:
    """The folder of the dict.txt that belongs to a checkpoint.

    Args:
        checkpoint: the file.
        trained_on: folders that the checkpoint names, with colons between them; of
            these the first is looked at, and then the checkpoint's own.
        data: the only folder to look at.

    Raises:
        ValueError: there is no dict.txt.
    """
    first = str(trained_on or "").split(":")[0]
    folders = [Path(first)] * bool(first) + [checkpoint.parent]
    folders = folders if data is None else [Path(data)]
    for folder in folders:
        if (folder / DICTIONARY).is_file():
            return folder
    raise ValueError(
        f"no {DICTIONARY} in {' or '.join(map(str, folders))}; name the folder that "
        "the checkpoint was trained on (--data)"
    )


def find_subword_files(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The subword files of the first folder that has any.

    Returns:
        a sentencepiece model; or GPT-2's encoder.json and vocab.bpe; or nothing.

    Raises:
        ValueError: a folder has one of GPT-2's files without the other.
    """
    for folder in folders:
        if (model := folder / SENTENCEPIECE_MODEL).is_file():
            return (model,)
        found = tuple(p for name in GPT2_UNITS if (p := folder / name).is_file())
        if len(found) == 1:
            raise ValueError(f"{folder} must have both of {' and '.join(GPT2_UNITS)}")
        if found:
            return found
    return ()


def named_units(files: Sequence[Path]) -> dict[str, Path]:
    """Subword files, as ``find_subword_files`` gives them, by the names that prepared
    data and exports have for them: a sentencepiece model may come by another."""
    if len(files) == 1:
        return {SENTENCEPIECE_MODEL: files[0]}
    return {file.name: file for file in files}


def subword_sha256(folder: Path) -> dict[str, str]:
    """SHA-256 of each subword file of a folder, by name."""
    files = (folder / name for name in (SENTENCEPIECE_MODEL, *GPT2_UNITS))
    return {file.name: file_fingerprint(file) for file in files if file.is_file()}


def pieces_of(model: Path) -> list[str]:
    """The pieces of a sentencepiece model in its order, without its special ones.

    Raises:
        ValueError: it is none, or damaged.
    """
    from sentencepiece import SentencePieceProcessor

    try:
        units = SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{model}: not a sentencepiece model") from error
    return [
        units.id_to_piece(i)
        for i in range(units.get_piece_size())
        if not (units.is_control(i) or units.is_unknown(i))
    ]


def missing_units(symbols: Sequence[str]) -> str | None:
    """The subword files without which no text becomes these symbols of a dictionary.

    Returns:
        their names; None if words may be the symbols.
    """
    if any(symbol.startswith(SPACE) for symbol in symbols):
        return SENTENCEPIECE_MODEL
    # words, too, may be numbers, but not so many different ones
    are_numbers = sum(symbol.isdecimal() for symbol in symbols) > GPT2_SIZE / 2
    return " and ".join(GPT2_UNITS) if are_numbers else None


def control_ids(dictionary: Any) -> tuple[int, ...]:
    """The tokens of a fairseq dictionary that no text gives: those of RESERVED."""
    ids = {dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.index(MASK)}
    return tuple(sorted(ids - {dictionary.unk()}))


def decode_byte_pieces(text: str) -> str:
    """<0xE2><0x82><0xAC>, from a sentencepiece model with byte fallback, as €."""
    return _BYTES.sub(
        lambda match: bytes.fromhex(re.sub("<0x|>", "", match[0])).decode(
            "utf-8", errors="replace"
        ),
        text,
    )

"""Files of dictionaries and subword units, and bytes that are spelt as pieces."""

import hashlib
import json
import re
from collections.abc import Sequence

DICTIONARY = "dict.txt"
SENTENCEPIECE_MODEL = "sentencepiece.bpe.model"
GPT2_UNITS = ("encoder.json", "vocab.bpe")
# fairseq's flag of a line of dict.txt whose symbol stands in an earlier one
OVERWRITE = " #fairseq:overwrite"

# fairseq puts these in front of every dictionary
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
# masked_lm and sentence_prediction append it to the dictionary of their data
MASK = "<mask>"

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


def decode_byte_pieces(text: str) -> str:
    """<0xE2><0x82><0xAC>, from a sentencepiece model with byte fallback, as €."""
    return _BYTES.sub(_decode, text)


def _decode(match: re.Match) -> str:
    digits = match[0].replace("<0x", "").replace(">", "")
    return bytes.fromhex(digits).decode("utf-8", errors="replace")


def check_text(text: object, error: type[Exception], name: str = "text") -> None:
    """Raise ``error`` for what cannot be encoded, such as bytes that are not UTF-8.

    Args:
        text: a prompt; Python keeps undecodable bytes of a command line as surrogates.
        error: what to raise.
        name: of the text, for the message.
    """
    if not isinstance(text, str):
        raise error(f"{name}={repr(text)[:80]}; allowed: text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise error(
            f"{name}={ascii(text)[:80]}: {ascii(text[problem.start])} at "
            f"{problem.start} is no character; allowed: text in UTF-8"
        ) from problem

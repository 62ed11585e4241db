"""Files of dictionaries and subword units, and bytes that are spelt as pieces."""

import re

DICTIONARY = "dict.txt"
SENTENCEPIECE_MODEL = "sentencepiece.bpe.model"
GPT2_UNITS = ("encoder.json", "vocab.bpe")

_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def decode_byte_pieces(text: str) -> str:
    """<0xE2><0x82><0xAC>, from a sentencepiece model with byte fallback, as €."""
    return _BYTES.sub(_decode, text)


def _decode(match: re.Match) -> str:
    digits = match[0].replace("<0x", "").replace(">", "")
    return bytes.fromhex(digits).decode("utf-8", errors="replace")

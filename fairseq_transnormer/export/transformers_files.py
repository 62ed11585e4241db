"""What transformers reads beside config.json: how to tokenize, and how to generate.

Both follow from the manifest; transformers is not needed to write them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data.subword_files import MASK, SPECIAL
from ..data.whole_files import write_text
from .manifest import CAUSAL, CLASSIFIER, Manifest

TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"
TOKENIZER_CLASS = "TransNormerTokenizer"


def tokenizer_settings(manifest: Manifest) -> dict[str, Any]:
    """What tokenizer_config.json holds."""
    bos, pad, eos, unk = SPECIAL
    symbol = {number: SPECIAL[number] for number in range(len(SPECIAL))}
    settings = {
        "tokenizer_class": TOKENIZER_CLASS,
        "vocab_size": manifest.vocab_size,
        "bos_token": symbol[manifest.start_token],
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": unk,
    }
    if manifest.kind == CAUSAL:
        # what is generated stands at the end of each row
        return settings | {"padding_side": "left"}
    longest = asdict(manifest.config)["max_positions"]
    if "mask" in manifest.special_tokens:
        settings["mask_token"] = MASK
    if manifest.kind == CLASSIFIER:
        settings["breaks_as_spaces"] = True
    return settings | {
        "cls_token": bos,
        "sep_token": eos,
        "padding_side": "right",
        "model_max_length": longest,
    }


def generation_settings(manifest: Manifest) -> dict[str, Any]:
    """What generation_config.json holds: a pad is no text, as fairseq has it."""
    special = manifest.special_tokens
    return {
        "bos_token_id": manifest.start_token,
        "eos_token_id": special["eos"],
        "pad_token_id": special["pad"],
        "suppress_tokens": [special["pad"]],
    }


def write_transformers_files(manifest: Manifest, folder: Path, has_units: bool) -> None:
    """Write both, as far as they mean something.

    has_units: whether the folder has a dictionary.
    """
    if has_units:
        _write(folder / TOKENIZER, tokenizer_settings(manifest))
    if manifest.kind == CAUSAL:
        _write(folder / GENERATION, generation_settings(manifest))


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")

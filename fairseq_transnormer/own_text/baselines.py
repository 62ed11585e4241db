"""What trivial rules need for the test text: frequencies, pairs, and xz."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path

import numpy as np

from ..analysis.frequency_baselines import baselines
from ..data import REPORT
from ..data.binary_data import read_binary_data

# xz looks back no further, and takes a second for a few million bytes
MOST_BYTES = 16 << 20
MOST_IDS = 100_000_000
PRESET = 9 | lzma.PRESET_EXTREME


def trivial_rules(text: Path, data: Path) -> dict[str, dict[str, float]]:
    """Bits a byte, and perplexity a token where there is one, of each rule.

    Args:
        text: folder with train.txt and test.txt.
        data: folder of the same text as ids.
    """
    test = (text / "test.txt").read_bytes()
    with open(text / "train.txt", "rb") as file:
        file.seek(max(0, (text / "train.txt").stat().st_size - MOST_BYTES))
        train = file.read()
    test_part = test[:MOST_BYTES]
    after = _packed(train + test_part) - _packed(train)
    found = {
        "xz": {"bits_per_byte": 8 * _packed(test_part) / len(test_part)},
        "xz after train": {"bits_per_byte": 8 * after / len(test_part)},
    }
    size = json.loads((data / REPORT).read_text())["dictionary_size"]
    ids = {
        split: np.asarray(read_binary_data(data / split).ids()[:MOST_IDS], np.int64)
        for split in ("train", "test")
    }
    if min(map(len, ids.values())) > 1:
        perplexities = baselines(ids["train"], ids["test"], size)
        for name, perplexity in perplexities.items():
            bits = math.log2(perplexity) * len(ids["test"])
            found[name] = {
                "perplexity": perplexity,
                "bits_per_byte": bits / len(test),
            }
    return found


def _packed(content: bytes) -> int:
    return len(lzma.compress(content, preset=PRESET))

"""What the commands of data_prep make of fixed inputs: a SHA-256 of each file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from pathlib import Path

from data_prep.__main__ import main

# folders, bars and reports have paths and times; these are what training reads
READ = {".bin", ".idx", ".txt", ".tsv", ".model", ".npy"}
SMALL = ["--counts", "40", "8", "8"]
SPLITS = ("train", "valid", "test")
LISTOPS = [
    "--workers",
    "1",
    "--counts",
    "6",
    "2",
    "2",
    "--shortest",
    "10",
    "--longest",
    "90",
]


def write_texts(folder: Path) -> dict[str, Path]:
    """Sentences of a small vocabulary, and labelled ones."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    words = [f"{a}{b}" for a in ("ra", "lo", "mi", "té") for b in ("no", "sa", "vex")]
    paths = {}
    for split, count in zip(SPLITS, (120, 20, 20), strict=True):
        lines = [" ".join(chance.choices(words, k=9)) + " ." for _ in range(count)]
        paths[split] = folder / f"{split}.txt"
        paths[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = ["text\tlabel"]
        rows += [f"{x}\t{'yes' if 'no' in x[:9] else 'no'}" for x in lines]
        paths[f"{split} labels"] = folder / f"labelled-{split}.tsv"
        paths[f"{split} labels"].write_text("\n".join(rows) + "\n", encoding="utf-8")
    return paths


def commands(folder: Path) -> dict[str, list[str]]:
    """Name -> the words of a command, without its destination; in their order."""
    texts = write_texts(folder)
    own = [word for split in SPLITS for word in (f"--{split}", str(texts[split]))]
    labelled = [
        word
        for split in SPLITS
        for word in (f"--{split}", str(texts[f"{split} labels"]))
    ]
    pieces = ["--tokenizer", "sentencepiece", "--vocab-size", "280"]
    return {
        "words": ["text", *own, "--tokenizer", "word"],
        "pieces": ["text", *own, *pieces],
        "split": ["split_text", "--input", str(texts["train"])],
        "labels": ["classification", *labelled, "--data", str(folder / "pieces")],
        "copy_task": ["copy_task", *SMALL, "--longest", "9"],
        "recall": ["recall", *SMALL, "--length", "32", "--vocabulary", "64"],
        "digits": ["digits"],
        "listops": ["lra", "listops", *LISTOPS],
        "synthetic_lra": ["synthetic_lra"],
    }


def digests(folder: Path) -> dict[str, dict[str, str]]:
    """Name of a command -> path in its folder -> the beginning of its SHA-256."""
    found = {}
    for name, words in commands(folder).items():
        dest = folder / name
        with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
            assert main([*words, "--dest", str(dest)]) == 0, name
        found[name] = {
            str(path.relative_to(dest)): digest(path)
            for path in sorted(dest.rglob("*"))
            if path.suffix in READ
        }
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

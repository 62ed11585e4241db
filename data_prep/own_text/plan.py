"""``data_prep plan``: what scripts/own_text.sh trains on a folder of texts."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from fairseq_transnormer.data import MANIFEST

from ..folders.options import MaybeDirectory, at_least, option
from .division import Wanted, Way, divide
from .documents import find_files
from .split_text import COVERAGE, SUFFIXES, counted

FEWEST_CHARACTERS = 2_000
# of sentencepiece: bytes, fairseq's special symbols, and one to begin words
FIXED_ENTRIES = 261
MOST_ENTRIES = 32_000
# a script of more is written in characters that are half a word each
LARGE_ALPHABET = 1_000
# width and layers, with 12 * layers * width^2 parameters in the layers
MODELS = (
    *((64, 2), (128, 2), (128, 4), (192, 4), (256, 4)),
    *((384, 6), (512, 6), (768, 12)),
)
MODELS_ON_CPU = 5
PARAMETERS_A_TOKEN = 4
HEAD_WIDTH = 64
# the least of a size, and its steps
ALLOWED = {
    "vocab_size": (FIXED_ENTRIES + 1, 1),
    "width": (HEAD_WIDTH, HEAD_WIDTH),
    "layers": (2, 2),
    "tokens_per_sample": (3, 1),  # windows of the score overlap by half of them
    "batch_size": (1, 1),
    "updates": (1, 1),
}
EPOCHS = 10
FEWEST_UPDATES_AN_EPOCH = 50
# the texts that the model continues, and how much it is given of each
OPENINGS, OPENING_CHARACTERS = 4, 30


@dataclass(frozen=True)
class Sizes:
    """None: by the rule."""

    vocab_size: int | None = None
    """pieces of the vocabulary, at most"""
    width: int | None = None
    """of the model, a multiple of 64"""
    layers: int | None = None
    """of the model, an even number; half are Diag, half Norm"""
    tokens_per_sample: int | None = None
    """tokens of a sequence in training"""
    batch_size: int | None = None
    """sequences of an update"""
    updates: int | None = None
    """of the training, at most; more of them resume a training that is done"""
    lr: float | None = None
    """highest learning rate"""

    def __post_init__(self) -> None:
        for name, (low, step) in ALLOWED.items():
            value = getattr(self, name)
            if value is not None and (value < low or value % step):
                allowed = f"{low}, {low + step}, ..."
                raise ValueError(f"{option(name)} must be {allowed}, got {value}")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"--lr must be above 0, got {self.lr}")


class Plan(NamedTuple):
    """What is trained, and how; the names are those of ``Sizes``.

    ``coverage`` is the share of the characters that are pieces of their own.
    """

    vocab_size: int
    coverage: float
    width: int
    layers: int
    tokens_per_sample: int
    batch_size: int
    updates: int
    lr: float

    def described(self, tokens: int) -> str:
        """A line on each value; ``tokens`` of the train split, about."""
        update = self.batch_size * self.tokens_per_sample
        parameters = 12 * self.layers * self.width**2 + self.vocab_size * self.width
        return (
            f"  vocabulary   up to {self.vocab_size:,} pieces, character coverage "
            f"{self.coverage:g}\n"
            f"  model        T2, width {self.width}, {self.layers} layers; about "
            f"{parameters / 1e6:.1f} M parameters\n"
            f"  update       {self.batch_size} sequences of {self.tokens_per_sample} "
            f"tokens, learning rate {self.lr:g}\n"
            f"  training     up to {self.updates:,} updates, about "
            f"{self.updates * update / tokens:.1f} epochs; ends earlier where "
            "validation no longer gets better"
        )

    def words(self, gpus: int) -> dict[str, list[str]]:
        """Words of a command by its array: encode, train, score."""
        batch = self.batch_size // max(1, gpus)
        half, length = self.layers // 2, self.tokens_per_sample
        between = max(1, self.updates // 20)
        training = {
            "model.attention_types": f"'diag*{half},norm*{half}'",
            "model.embed_dim": self.width,
            "model.num_heads": self.width // HEAD_WIDTH,
            "model.ffn_dim": 8 * self.width // 3,
            "model.block_size": 64,
            "task.tokens_per_sample": length,
            "hydra.job.env_set.SEQUENCES_PER_UPDATE": self.batch_size,
            "optimization.max_update": self.updates,
            "optimization.lr": f"[{self.lr:g}]",
            "lr_scheduler.warmup_updates": max(1, min(1000, self.updates // 10)),
            "common.log_interval": max(1, self.updates // 100),
            "dataset.validate_interval_updates": between,
            # patience would count those at the ends of epochs, too
            "dataset.validate_interval": self.updates,
            "checkpoint.save_interval_updates": between,
            "checkpoint.patience": 4,
        }
        values = [f"{name}={value}" for name, value in training.items()]
        pieces = ["--vocab-size", str(self.vocab_size), "--vocab-at-most"]
        return {
            "encode": [*pieces, "--character-coverage", f"{self.coverage:g}"],
            "train": [*values, "--batch-size", str(batch), "--gpus", str(gpus)],
            # each token after half of a training's sequence or more
            "score": ["--window", str(length), "--overlap", str(length // 2)],
        }


def estimated_tokens(counts: Mapping[str, int]) -> int:
    """Pieces of a text: four characters each, of a large script one and a half."""
    large = counts["different_characters"] > LARGE_ALPHABET
    return round(counts["characters"] / (1.5 if large else 4))


def plan_for(counts: Mapping[str, int], gpus: int, sizes: Sizes) -> Plan:
    """The plan for a text.

    Args:
        counts: of the train split: characters, different_characters and
            frequent_characters, as ``data_prep split_text`` counts them.
        gpus: how many train; 0: the CPU.
        sizes: that the user has chosen.

    Raises:
        ValueError: there is too little text, or GPUs do not divide an update.
    """
    has_gpu, workers = gpus > 0, max(1, gpus)
    if sizes.batch_size and sizes.batch_size % workers:
        raise ValueError(
            f"--batch-size must be a multiple of the {gpus} GPUs, got "
            f"{sizes.batch_size}"
        )
    characters = counts["characters"]
    if characters < FEWEST_CHARACTERS:
        raise ValueError(
            f"{characters:,} characters of text to train on; allowed: "
            f"{FEWEST_CHARACTERS:,} or more"
        )
    alphabet, coverage = counts["different_characters"], 1.0
    if alphabet > LARGE_ALPHABET:
        alphabet, coverage = counts["frequent_characters"], COVERAGE
    pieces = min(MOST_ENTRIES, max(3 * math.sqrt(characters), 2 * alphabet))
    tokens = estimated_tokens(counts)
    width, layers = MODELS[0]
    for wider, deeper in MODELS if has_gpu else MODELS[:MODELS_ON_CPU]:
        if 12 * deeper * wider**2 <= PARAMETERS_A_TOKEN * tokens:
            width, layers = wider, deeper
    length = 512 if has_gpu and tokens > 10**6 else 256
    length = length if tokens > 256 * FEWEST_UPDATES_AN_EPOCH else 128
    length = sizes.tokens_per_sample or length
    batch = round(tokens / (FEWEST_UPDATES_AN_EPOCH * length))
    batch = min(64 if has_gpu else 8, batch) // workers * workers
    batch = sizes.batch_size or max(workers, batch)
    updates = round(EPOCHS * tokens / (batch * length))
    updates = max(200, min(50_000 if has_gpu else 2_000, updates))
    width = sizes.width or width
    return Plan(
        vocab_size=sizes.vocab_size or -(-int(FIXED_ENTRIES + pieces) // 8) * 8,
        coverage=coverage,
        width=width,
        layers=sizes.layers or layers,
        tokens_per_sample=length,
        batch_size=batch,
        updates=sizes.updates or updates,
        lr=sizes.lr or (0.002 if width <= 256 else 0.001),
    )


def openings(lines: Iterable[str], count: int = OPENINGS) -> list[str]:
    """Beginnings of lines of a text, evenly chosen, of long ones if there are any.

    Each is up to OPENING_CHARACTERS, at most half of its line, and ends at a space if
    it has one. Of a text without lines it is the empty prompt.
    """
    found = [line.strip() for line in lines if line.strip()]
    found = [line for line in found if len(line) > 2 * OPENING_CHARACTERS] or found
    count = min(count, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    halves = [line[: min(OPENING_CHARACTERS, len(line) // 2)] for line in chosen]
    return [*dict.fromkeys(x.rpartition(" ")[0] or x for x in halves)] or [""]


def plan(
    folder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    /,
    sizes: Sizes,
    dest: MaybeDirectory = None,
    dry_run: bool = False,
    gpus: int | None = None,
    precision: Literal["fp32", "fp16", "bf16"] | None = None,
    split_by: Way = "auto",
    suffixes: tuple[str, ...] = SUFFIXES,
) -> None:
    """What is to be trained on a folder of texts: scripts/own_text.sh trains it.

    The rule by which the sizes of vocabulary, model and training follow from the text
    stands in docs/train.md. The plan is printed on stderr. stdout has the words of the
    script's commands, as variables and arrays of bash. Nothing is written.

    Args:
        folder: your texts; or a file.
        dest: where all goes; None: runs/ and the name of FOLDER.
        dry_run: have the script print the plan and its commands, and write nothing.
        gpus: how many train; 0: the CPU; None: 1 if there is one.
        precision: None: fp32.
        split_by: as in data_prep split_text.
        suffixes: of the files that are read, as in data_prep split_text.
    """
    place = (dest or Path("runs", folder.resolve().name)).resolve()
    files, read = find_files("FOLDER", [folder], suffixes, place)
    division = divide(files, Wanted(split_by))
    _require_place(place)
    at_least(0, gpus=gpus)
    if gpus is None:
        # a second that --help shall not cost
        import torch

        gpus = min(1, torch.cuda.device_count())
    counts = counted(division)
    planned = plan_for(counts["train"], gpus, sizes)
    print(f"{folder}: {read}", file=sys.stderr)
    division.show()
    device = f"{gpus} GPU" if gpus else "the CPU"
    described = planned.described(estimated_tokens(counts["train"]))
    print(f"plan, for {device}, in {place}:\n{described}", file=sys.stderr)
    words = planned.words(gpus)
    words["train"] += ["--precision", precision] if precision else []
    words["split"] = ["--split-by", split_by, "--suffixes", *suffixes]
    test = next(split for split in division.splits if split.name == "test")
    # as one word: an opening may begin with a hyphen
    words["prompts"] = [f"--prompt={each}" for each in openings(test.lines())]
    printed = [f"folder={_quoted(folder)} dest={_quoted(place)}"]
    printed.append(f"dry_run={'1' * dry_run}")
    printed += [f"{name}=({shlex.join(values)})" for name, values in words.items()]
    # names of files may be no UTF-8, and texts are it, whatever the locale
    text = "".join(f"{line}\n" for line in printed)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def _require_place(dest: Path) -> None:
    """Refuse a folder of somebody's files: the commands know their own folders only."""
    if os.pathsep in str(dest):
        raise ValueError(f"--dest {dest}: fairseq takes {os.pathsep!r} as two folders")
    if not os.path.lexists(dest) or (dest.is_dir() and not any(dest.iterdir())):
        return
    if (dest / "text" / MANIFEST).is_file() or any(dest.glob("text.tmp-*/")):
        return
    raise ValueError(
        f"--dest {dest}: exists and is no run of own_text.sh; allowed: a new folder, "
        "or that of an earlier run"
    )


def _quoted(path: Path) -> str:
    return shlex.quote(os.fsencode(path).decode("utf-8", "surrogateescape"))

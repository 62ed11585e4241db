"""The commands that make a model of a text, and where each leaves what it makes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..training.exit_code import ended_by
from .errors import OwnTextError
from .plan import HEAD_WIDTH, Plan

MODULE = "fairseq_transnormer"
# the files that an unseen text's opening is taken for
SAMPLES, OPENING_WORDS, OPENING_CHARACTERS = 4, 5, 20


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        dest: the folder.
    """

    dest: Path

    @property
    def record(self) -> Path:
        return self.dest / "own_text.json"

    @property
    def text(self) -> Path:
        return self.dest / "text"

    @property
    def data(self) -> Path:
        return self.dest / "data-bin"

    @property
    def checkpoints(self) -> Path:
        return self.dest / "checkpoints"

    @property
    def log(self) -> Path:
        return self.dest / "output.log"

    @property
    def scores(self) -> Path:
        return self.dest / "scores.json"

    @property
    def samples(self) -> Path:
        return self.dest / "generated.txt"

    @property
    def curves(self) -> Path:
        return self.dest / "curves.png"

    @property
    def model(self) -> Path:
        """The checkpoint with the best validation loss."""
        return self.checkpoints / "checkpoint_best.pt"


def splitting(folder: Path, options: Sequence[str]) -> list[str]:
    """Divides the text, once ``--dest`` or ``--count`` is added."""
    return ["python", "-m", "data_prep", "split_text", "--input", str(folder), *options]


def encoding(run: Run, plan: Plan) -> list[str]:
    """Trains the subwords and writes the ids."""
    splits = (("--train", "train"), ("--valid", "valid"), ("--test", "test"))
    files = [word for option, name in splits for word in (option, run.text / name)]
    return [
        *("python", "-m", "data_prep", "text", "--dest", str(run.data)),
        *("--tokenizer", "sentencepiece", "--vocab-size", str(plan.vocab_size)),
        *("--vocab-at-most", "--character-coverage", f"{plan.character_coverage:g}"),
        *(word if isinstance(word, str) else f"{word}.txt" for word in files),
    ]


def training(run: Run, plan: Plan, gpus: int, precision: str | None) -> list[str]:
    """Trains, or resumes the training."""
    half = plan.layers // 2
    values = {
        "model.attention_types": f"'diag*{half},norm*{half}'",
        "model.embed_dim": plan.width,
        "model.num_heads": plan.width // HEAD_WIDTH,
        "model.ffn_dim": 8 * plan.width // 3,
        "model.block_size": plan.block_size,
        "task.tokens_per_sample": plan.tokens_per_sample,
        "optimization.max_update": plan.updates,
        "optimization.lr": f"[{plan.lr:g}]",
        "lr_scheduler.warmup_updates": plan.warmup_updates,
        "common.log_format": "json",
        "common.log_interval": max(1, plan.updates // 100),
        "dataset.validate_interval_updates": plan.validations,
        "checkpoint.save_interval_updates": plan.validations,
        "checkpoint.patience": 4,
    }
    words = [f"{name}={value}" for name, value in values.items()]
    words += [] if precision is None else ["--precision", precision]
    return [
        *("python", "-m", MODULE, "train", "alm_small", *words),
        *("--data", str(run.data), "--save-dir", str(run.checkpoints)),
        *("--gpus", str(gpus), "--batch-size", str(plan.batch_size)),
    ]


def scoring(run: Run, plan: Plan) -> list[str]:
    """Scores the test text, each token after half of a training's sequence or more."""
    length = plan.tokens_per_sample
    return [
        *("python", "-m", MODULE, "score", "--path", str(run.model)),
        *("--data", str(run.data), "--input", str(run.text / "test.txt"), "--json"),
        *("--window", str(length), "--overlap", str(length // 2)),
    ]


def generating(run: Run, prompts: Sequence[str]) -> list[str]:
    """Continues prompts."""
    return [
        *("python", "-m", MODULE, "generate", "--path", str(run.model)),
        *("--data", str(run.data), "--json", "--top-p", "0.9", "--temperature", "0.8"),
        *("--seed", "1", "--lines", "3", "--max-new-tokens", "80"),
        # as one word: an opening may begin with a hyphen
        *(f"--prompt={prompt}" for prompt in prompts),
    ]


def plotting(run: Run, name: str, target: Path) -> list[str]:
    """Draws the losses, and what else the log has."""
    return [
        *("python", "-m", MODULE, "analyse", "run_curves", f"{name}={run.checkpoints}"),
        *("--plot", str(target)),
    ]


def openings(test: Path, count: int = SAMPLES) -> list[str]:
    """The first words of lines of a text, evenly chosen; of characters without spaces.

    Of short lines, verse maybe, the first half, where there are no long ones.

    Args:
        test: the file.
        count: openings at most; one is the empty prompt where all lines are of a word.
    """
    found, halves = [], []
    with open(test, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if len(words) > 2 * OPENING_WORDS:
                found.append(" ".join(words[:OPENING_WORDS]))
            elif words and len(words[0]) > 2 * OPENING_CHARACTERS:
                found.append(words[0][:OPENING_CHARACTERS])
            elif not found and len(words) > 1:
                halves.append(" ".join(words[: len(words) // 2]))
    found = found or halves
    count = min(count, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    return list(dict.fromkeys(chosen)) or [""]


def run(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run a command whose output is for the user.

    Raises:
        OwnTextError: it failed, and has said why.
    """
    _check(command, subprocess.run(started(command), env=environment).returncode)


def divide(folder: Path, options: Sequence[str], environment: dict[str, str]) -> str:
    """Divide the text; what is printed.

    Args:
        folder: the texts.
        options: of ``data_prep split_text``, ``--dest`` or ``--count`` among them.
        environment: of the process.

    Raises:
        OwnTextError: it refused the text, in its words.
    """
    done = subprocess.run(
        started(splitting(folder, options)),
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode < 0:
        _check(splitting(folder, options), done.returncode)
    if done.returncode:
        reason = done.stderr.strip().rpartition(": error: ")[2]
        # the option that FOLDER is there
        raise OwnTextError(reason.replace("--input", "FOLDER"), done.returncode)
    return done.stdout


def output_of(command: Sequence[str], environment: dict[str, str]) -> str:
    """What a command prints; its errors and warnings go to stderr.

    Raises:
        OwnTextError: it failed, and has said why.
    """
    done = subprocess.run(
        started(command), env=environment, stdout=subprocess.PIPE, encoding="utf-8"
    )
    _check(command, done.returncode)
    return done.stdout


def _check(command: Sequence[str], code: int) -> None:
    if code < 0:  # it had no time to say why
        raise OwnTextError(
            f"{' '.join(command[2:4])} was ended by {ended_by(code)}; the same command "
            "resumes",
            1,
        )
    if code:
        raise OwnTextError(code=code)


def started(command: Sequence[str]) -> list[str]:
    """A command as a process starts it, by the Python that runs this."""
    return [sys.executable, *command[1:]]


def json_lines(text: str) -> list[dict]:
    """The objects of a command's output, one a line."""
    # str.splitlines would also cut at U+0085 and U+2028, which texts may have
    return [json.loads(line) for line in text.split("\n") if line]

"""A command that lacks a package reports it in one line, and how to install it.

Commands need different packages, which they import at many places; they all end here.
"""

from __future__ import annotations

import itertools
import sys
from types import TracebackType

# extra of setup.py -> modules that it brings
EXTRAS = {
    "fairseq": (
        *("fairseq", "fairseq_cli", "filelock", "hydra", "omegaconf", "sacrebleu"),
    ),
    "data": (
        *("PIL", "datasets", "debian", "pooch", "pyarrow", "sentencepiece"),
        *("tiktoken", "tqdm"),
    ),
    "export": ("safetensors",),
    "hf": ("accelerate", "tokenizers", "transformers"),
    "monitor": ("tensorboardX",),
    "reproduce": (
        *("matplotlib", "pandas", "scipy", "sklearn", "submitit", "tabulate", "yaml"),
    ),
    "triton": ("triton",),
}
EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}
OWN = ("fairseq_transnormer", "benchmarks", "data_prep")


def explain_to_users() -> None:
    """In the processes of this package's commands: one line, and exit code 2."""
    command = command_of(sys.orig_argv)
    if command is None:
        return
    show = sys.excepthook

    def explain(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, ImportError):
            return show(kind, error, trace)
        print(f"python -m {command}: error: {explanation(error)}", file=sys.stderr)
        raise SystemExit(2)

    sys.excepthook = explain


def command_of(arguments: list[str]) -> str | None:
    """The command of this package that ``python ARGUMENTS`` runs; None for others."""
    if "-m" not in arguments[:-1]:
        return None
    module, *words = arguments[arguments.index("-m") + 1 :]
    if module.partition(".")[0] not in OWN:
        return None
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    return " ".join([module, *words[: 2 if words[:1] == ["analyse"] else 1]])


def explanation(error: ImportError) -> str:
    """One line on what is missing, and on how to install it."""
    missing = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or missing in ("", *OWN):
        return " ".join(str(error).split())
    return f"{missing} is not installed; install it: {how_to_install(missing)}"


def how_to_install(module: str) -> str:
    """The command, with the extra of this package that has the module."""
    if module not in EXTRA_OF:
        return f"pip install {module}"
    how = f"pip install 'fairseq-transnormer[{EXTRA_OF[module]}]'"
    if EXTRA_OF[module] == "fairseq":
        how += " (Python 3.11 and 3.12; docs/installation.md has the others)"
    return how

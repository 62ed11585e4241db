"""Which Triton kernels may be used on this device: verdicts, in one JSON a device.

A kernel that was interpreted and compiled can still be wrong on a device. The fault may
be the compiler's, the driver's, or one of ours that only a device shows. ``verify``
compares kernels with torch and float64 (``trials``) and writes what it finds; here the
file is read once a process. A configuration that it lacks is tried in a child process.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

PACKAGE = "fairseq_transnormer"
FOLDER_VARIABLE = "FAIRSEQ_TRANSNORMER_CACHE"
COMMAND = f"python -m {PACKAGE} verify"
# options that vary from call to call; the others follow from what the caller chose
FLAGS = ("padded", "continued", "returned", "dropout", "aligned")
# compilers that work side by side; each has a CUDA context of its own
MOST_WORKERS = 8
_OPS = Path(__file__).parent
# neither code of kernels nor what they are tried on
_NO_KERNELS = {
    *("block_attention/torch_impl.py", "linear_attention/torch_impl.py"),
    *("feature_maps.py", "lrpe.py", "verdicts.py"),
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
logger = logging.getLogger(__name__)


class Configuration(NamedTuple):
    """What kernels are compiled for.

    Attributes:
        op: whose kernels.
        dtype: of the inputs.
        device: where.
        options: names and values, hashable.
    """

    op: str
    dtype: torch.dtype
    device: torch.device
    options: tuple[tuple[str, Any], ...]

    def in_words(self) -> str:
        """The configuration without the device, for files, commands and messages."""
        dtype = str(self.dtype).removeprefix("torch.")
        return " ".join([self.op, dtype, *(f"{k}={v}" for k, v in self.options)])

    @classmethod
    def from_words(cls, words: str, device: torch.device) -> Configuration:
        """The inverse of ``in_words``.

        Raises:
            ValueError: these are no words of a configuration.
        """
        first, *pairs = re.split(r" (?=\w+=)", words)
        op, _, name = first.partition(" ")
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"configuration must begin with OP DTYPE, got {words!r}")
        named = [pair.partition("=")[::2] for pair in pairs]
        return cls(op, dtype, device, tuple((k, _value(v)) for k, v in named))

    def with_any_flags(self) -> list[Configuration]:
        """The configurations that differ from this one in flags alone."""
        options = dict(self.options)
        flags = [name for name in options if name in FLAGS]
        choices = itertools.product((False, True), repeat=len(flags))
        each = (options | dict(zip(flags, values, strict=True)) for values in choices)
        return [self._replace(options=tuple(one.items())) for one in each]


class Verdict(NamedTuple):
    """What a trial found.

    Attributes:
        reason: against the kernels; None where they passed.
        error: their largest, as a multiple of torch's; None if they gave no result.
        seconds: that the trial took, compilation included.
    """

    reason: str | None
    error: float | None
    seconds: float


_collected: list[Configuration] | None = None


def why_kernels_are_avoided(
    op: str,
    dtype: torch.dtype,
    device: torch.device,
    options: tuple[tuple[str, Any], ...],
) -> str | None:
    """The reason against these kernels, or None; tries them where no file knows.

    Args: as the attributes of ``Configuration``.
    """
    if _collected is not None:
        _collected.append(Configuration(op, dtype, device, options))
        return "configurations are only collected"
    return _reason(op, dtype, device, options)


@functools.cache
def _reason(*fields: Any) -> str | None:
    configuration = Configuration(*fields)
    device = configuration.device
    words = configuration.in_words()
    if words not in known(device):
        said = _try_any_flags(configuration.with_any_flags()[0])
        if words not in known(device):
            return _warned(configuration, f"it could not be tried: {said}")
    reason = known(device)[words].reason
    return None if reason is None else _warned(configuration, reason)


def _warned(configuration: Configuration, reason: str) -> str:
    words, device = configuration.in_words(), configuration.device
    warnings.warn(
        f"{PACKAGE}: torch computes {words} on {device}, not Triton: {reason}\n"
        f'Again: {COMMAND} --again --device {device} --configuration "{words}"',
        RuntimeWarning,
        stacklevel=7,
    )
    return reason


@functools.cache
def _try_any_flags(configuration: Configuration) -> str:
    """``try_in_a_child``, once a process for what differs in flags alone."""
    return try_in_a_child(configuration.with_any_flags())


def try_in_a_child(configurations: Sequence[Configuration]) -> str:
    """Have ``verify`` try configurations of one device; it writes the verdicts.

    Returns:
        How it ended, with what it said last: of what it has no verdict on.
    """
    device = configurations[0].device
    workers = min(MOST_WORKERS, os.cpu_count() or 1, len(configurations))
    command = [sys.executable, "-m", PACKAGE, "verify", "--device", str(device)]
    command += ["--workers", str(workers), "--configuration"]
    command += [each.in_words() for each in configurations]
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder()):
            pass  # else the trials are in vain
        # at a level that is shown where nobody has set up logging
        logger.warning(
            "%s: trying Triton kernels on %s, once for this machine (%s does it ahead)",
            *(PACKAGE, device, COMMAND),
        )
        done = subprocess.run(
            command,
            # this process may have found the package where another would not look
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    known.cache_clear()
    last = done.stderr.strip().rpartition("\n")[2]
    return f"{COMMAND} ended with {done.returncode}: {last}"


@contextmanager
def collected() -> Iterator[list[Configuration]]:
    """Inside, nothing is tried and torch computes: the list gets what would be."""
    global _collected
    _collected = []
    try:
        yield _collected
    finally:
        _collected = None


def forget() -> None:
    """Forget what this process remembers; files stay."""
    _reason.cache_clear()
    _try_any_flags.cache_clear()
    known.cache_clear()


# files


def folder() -> Path:
    """Where verdicts are kept: $FAIRSEQ_TRANSNORMER_CACHE, or the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        cache = os.devnull  # a user without a home: nothing can be kept
    return Path(named or Path(cache) / PACKAGE) / "verdicts"


@functools.cache
def environment(device: torch.device) -> dict[str, Any]:
    """What verdicts hold for: device, versions, and the text of the ops.

    Torch's implementations and this file are left out: kernels compute the same
    whatever they say. So a verdict compares with torch as it was at the trial.
    """
    import triton

    digest = hashlib.sha256()
    for file in sorted(_OPS.rglob("*.py")):
        if file.relative_to(_OPS).as_posix() not in _NO_KERNELS:
            digest.update(without_docstrings(file.read_text(encoding="utf-8")).encode())
    found: dict[str, Any] = {"device": "interpreter", "capability": None}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
        found["capability"] = list(torch.cuda.get_device_capability(device))
    return found | {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "sources": digest.hexdigest(),
    }


def without_docstrings(source: str) -> str:
    """The lines of Python code that no docstring has: those compile to the same.

    Taken from the text, since a dump of the syntax varies with Python's version.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            for number in range(docstring.lineno - 1, docstring.end_lineno or 0):
                lines[number] = ""
    return "".join(lines)


def path_of(device: torch.device) -> Path:
    """The file of a device, by its environment."""
    about = environment(device)
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]
    name = "{device}-torch{torch}-triton{triton}".format(**about)
    return folder() / f"{re.sub(r'[^A-Za-z0-9.+]+', '-', name)}-{digest}.json"


@functools.cache
def known(device: torch.device) -> Mapping[str, Verdict]:
    """Verdicts by configuration in words: those of the package, then the user's."""
    path = path_of(device)
    return {**read(_OPS / "measured" / path.name), **read(path)}


def read(path: Path) -> dict[str, Verdict]:
    """The verdicts of a file; none where it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["verdicts"]
        return {words: Verdict(**fields) for words, fields in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def add(device: torch.device, verdicts: Mapping[str, Verdict]) -> None:
    """Write verdicts into the device's file, whose ``lock`` the caller holds.

    Raises:
        OSError: it cannot be written.
    """
    path = path_of(device)
    found = {**read(path), **verdicts}
    content = {
        "environment": environment(device),
        "verdicts": {words: each._asdict() for words, each in found.items()},
    }
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def lock(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, no other process of this machine tries kernels on such a device.

    Raises:
        OSError: there is no folder for verdicts.
    """
    from filelock import FileLock

    path = path_of(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(f"{path}.lock").acquire()
    known.cache_clear()
    return held


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.isdigit() else text

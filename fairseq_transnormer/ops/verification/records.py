"""Verdicts of trials in files, by device, versions and sources.

A file a verdict, written whole: processes that race write the same. A trial that is
under way has a marker beside it; one whose process is gone tells that the trial took
its process with it (an illegal address ends a CUDA context), or that it was killed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

FOLDER_VARIABLE = "FAIRSEQ_TRANSNORMER_CACHE"
_OPS = Path(__file__).parents[1]


class Record(NamedTuple):
    """What a trial found.

    Attributes:
        reason: against the kernels; None where they passed.
        error: their largest, as a multiple of torch's; None if they gave no result.
        seconds: that the trial took, compilation included.
    """

    reason: str | None
    error: float | None
    seconds: float


def folder() -> Path:
    """Where verdicts are kept: $FAIRSEQ_TRANSNORMER_CACHE, or the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named) / "kernel_trials"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        # a user without a home: nothing can be kept here
        cache = os.devnull
    return Path(cache) / "fairseq_transnormer" / "kernel_trials"


def path_of(configuration: str, device: torch.device) -> Path:
    """The file of a verdict.

    Args:
        configuration: what is compiled, in words.
        device: where.
    """
    known = json.dumps([configuration, environment(device)])
    digest = hashlib.sha256(known.encode()).hexdigest()[:24]
    return folder() / f"{configuration.split()[0]}-{digest}.json"


def read(path: Path) -> Record | None:
    """A verdict; None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        record = Record(*(found[field] for field in Record._fields))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    known = isinstance(record.reason, str | None) and isinstance(
        record.seconds, int | float
    )
    return record if known else None


def write(path: Path, record: Record, configuration: str, device: torch.device) -> None:
    """Keep a verdict. Where it cannot be written, each process finds out by itself."""
    content = {
        "configuration": configuration,
        **record._asdict(),
        "environment": environment(device),
    }
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError:
        _remove(part)


@contextmanager
def marked(path: Path) -> Iterator[None]:
    """Inside, a marker beside the file tells that this process is at the trial."""
    marker = path.with_name(f"{path.name}.{_here()}.{uuid.uuid4().hex}.running")
    this = json.dumps({"pid": os.getpid(), "started": _start(os.getpid())})
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(this, encoding="utf-8")
    except OSError:
        pass
    try:
        yield
    finally:
        _remove(marker)


def process_was_lost(path: Path) -> bool:
    """Whether a process of this machine ended in the middle of this trial.

    Its marker is removed.
    """
    lost = False
    for marker in path.parent.glob(f"{path.name}.{_here()}.*.running"):
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
            is_running = found["started"] == _start(found["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            # it is being written, or has gone
            continue
        if not is_running:
            _remove(marker)
            lost = True
    return lost


@functools.cache
def environment(device: torch.device) -> dict[str, Any]:
    """What else a verdict holds for: device, driver, versions and sources."""
    import triton

    known = {
        "device": str(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "sources": _digest_of_sources(),
    }
    if device.type == "cuda":
        known |= {
            "device": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "driver": _first_line("/proc/driver/nvidia/version"),
        }
    return known


@functools.cache
def _digest_of_sources() -> str:
    """Of what the kernels and their launches are written in."""
    digest = hashlib.sha256()
    for file in sorted(_OPS.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _here() -> str:
    """What tells where a process number is one: machine, and namespace in it."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}-{namespace}"


def _start(pid: int) -> str | None:
    """When a process started, of which boot; None where none runs, or none is told."""
    try:
        _, _, stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    state, *rest = stat.split()
    # ended, and its parent has not asked how
    if state == "Z":
        return None
    return f"{rest[18]} of {_first_line('/proc/sys/kernel/random/boot_id')}"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return "unknown"


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass

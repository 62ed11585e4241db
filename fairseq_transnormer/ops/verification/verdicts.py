"""When a configuration of kernels is tried, and who remembers the verdict.

A trial runs in a thread of its own: grad mode, inference mode, autocast, modes such as
FakeTensorMode, hooks on saved tensors, tracing and the current stream belong to a
thread, so a new one has none of the caller's. Its numbers come from generators of its
own, and of TF32 and seeds nothing is changed.

A trial that runs out of memory, or finds no compiler, gives no verdict: torch then
serves this process.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from . import records, trials
from .records import Record

PREFIX = "fairseq_transnormer"
LOST = (
    "its last trial ended the process, or the process was killed in it (verify --again "
    "tries once more)"
)
# errors that say nothing of a kernel: of memory, of a machine without a compiler
PASSING = ("out of memory", "ALLOC_FAILED", "C compiler")


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
        """The configuration without the device, for files and messages."""
        dtype = str(self.dtype).removeprefix("torch.")
        return " ".join([self.op, dtype, *(f"{k}={v}" for k, v in self.options)])


logger = logging.getLogger(__name__)

# reasons against configurations; None for those that passed
_reasons: dict[Configuration, str | None] = {}
_lock = threading.Lock()
_collected: list[Configuration] | None = None


def _renew_lock() -> None:
    """In the child of a fork, in which the thread that has the lock is not."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def why_kernels_are_avoided(
    op: str,
    dtype: torch.dtype,
    device: torch.device,
    options: tuple[tuple[str, Any], ...],
) -> str | None:
    """The reason against these kernels, or None; tries them if nobody has.

    Args: as the attributes of ``Configuration``.

    Raises:
        RuntimeError: the trial broke the CUDA context, which nothing in this process
            can use any more. The next process takes torch.
    """
    configuration = Configuration(op, dtype, device, options)
    if _collected is not None:
        if configuration not in _collected:
            _collected.append(configuration)
        return "configurations are only collected"
    try:
        return _reasons[configuration]
    except KeyError:
        pass
    reason = _why_now_is_no_time(configuration)
    if reason is not None:
        _warn(configuration, reason)
        return reason
    with _lock:
        if configuration not in _reasons:
            record = verdict(configuration, announces=True)
            _reasons[configuration] = record.reason
            if record.reason is not None:
                _warn(configuration, record.reason)
        return _reasons[configuration]


def verdict(
    configuration: Configuration, again: bool = False, announces: bool = False
) -> Record:
    """What a file knows, else what a trial finds.

    Args:
        again: try, whatever is known.
        announces: say, once for a device, that a trial makes the caller wait.

    Raises:
        RuntimeError: see ``why_kernels_are_avoided``.
    """
    words, device = configuration.in_words(), configuration.device
    path = records.path_of(words, device)
    was_lost = records.process_was_lost(path)
    if not again:
        if was_lost:
            return lost(configuration)
        known = records.read(path)
        if known is not None:
            return known
    if announces:
        _announce(device)
    begin = time.monotonic()
    with records.marked(path):
        reason, error, lasting = _in_a_new_thread(lambda: _try(configuration), device)
    record = Record(reason, error, round(time.monotonic() - begin, 3))
    if lasting:
        records.write(path, record, words, device)
    if reason is not None and device.type == "cuda":
        _check_context(configuration, reason)
    return record


def lost(configuration: Configuration) -> Record:
    """Keep that the trial of a configuration took its process with it."""
    words, device = configuration.in_words(), configuration.device
    record, path = Record(LOST, None, 0.0), records.path_of(words, device)
    records.process_was_lost(path)
    records.write(path, record, words, device)
    return record


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
    _reasons.clear()


def _try(configuration: Configuration) -> tuple[str | None, float | None, bool]:
    """The reason against the kernels, their error as a multiple of torch's, and whether
    the next process would find the same."""
    op, dtype, device, options = configuration
    try:
        return None, trials.largest_error(op, dtype, device, dict(options)), True
    except trials.Mismatch as error:
        return str(error), None, True
    except (torch.OutOfMemoryError, MemoryError, OSError) as error:
        return _told(error), None, False
    except Exception as error:
        told = _told(error)
        return told, None, not any(words in told for words in PASSING)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _in_a_new_thread(function: Callable[[], Any], device: torch.device) -> Any:
    """What it returns, without the caller's modes, hooks, tracing and stream."""
    box: list[Any] = []

    def body() -> None:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            box.append(function())
        finally:
            ended.set()

    ended = threading.Event()
    thread = threading.Thread(target=body, name=f"{PREFIX} trial")
    thread.start()
    interrupts = []
    while not ended.is_set():
        try:
            ended.wait()
        except KeyboardInterrupt as interrupt:
            # comes after the trial, which would continue without its lock
            interrupts.append(interrupt)
    thread.join()
    if interrupts:
        raise interrupts[0]
    if not box:
        raise RuntimeError("the trial of a kernel ended without a result")
    return box[0]


def _why_now_is_no_time(configuration: Configuration) -> str | None:
    if torch._C._current_graph_task_id() != -1:
        # a trial has a backward pass of its own, and its device has one thread for them
        return "first met in a backward pass, where nothing can be tried"
    device = configuration.device
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return (
            "not tried before a CUDA graph was captured, which stays with torch: call "
            "it once before the capture"
        )
    return None


@functools.cache
def _announce(device: torch.device) -> None:
    """Say once why the first call takes long."""
    # at a level that is shown where nobody has set up logging
    logger.warning(
        "%s: trying the Triton kernels on %s, once for this machine; the first update "
        "takes some 20 seconds longer (python -m fairseq_transnormer verify tries them "
        "ahead)",
        PREFIX,
        device,
    )


def _check_context(configuration: Configuration, reason: str) -> None:
    try:
        torch.cuda.synchronize(configuration.device)
    except RuntimeError as error:
        raise RuntimeError(
            f"{PREFIX}: the trial of {configuration.in_words()} broke the CUDA context "
            f"({reason}). It is recorded in {records.folder()}: start again, and torch "
            "is taken"
        ) from error


def _warn(configuration: Configuration, reason: str) -> None:
    warnings.warn(
        f"{PREFIX}: torch computes {configuration.in_words()} on "
        f"{configuration.device}, not Triton: {reason}",
        RuntimeWarning,
        stacklevel=5,
    )

"""One run a folder: a lock that ends with the process that holds it."""

import atexit
import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

NAME = "training.lock"
# another has the lock, and writes its name a moment later
SECONDS_TO_BE_NAMED = 1.0

# of the one run that this process is at: the file's descriptor and its path
_held: tuple[int, Path] | None = None


def hold(save_dir: Path) -> bool:
    """Lock a folder until the process ends, however it ends, or locks another one.

    flock(2), which the system takes back from a dead process: a file that is left says
    nothing. Data loaders and other children do not keep it.

    Returns:
        whether it is locked: some file systems have no locks, and a folder that cannot
        be written to is left to fairseq.

    Raises:
        ValueError: another process has it; the message names process and host.
    """
    global _held
    release()
    path = save_dir.absolute() / NAME
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            logger.debug("%s: %s", path, error.strerror)
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, path):
                break
            os.close(lock)  # of a run that has just ended and removed its file
        except OSError as error:
            holder = None
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = _holder(lock)
            os.close(lock)
            if holder is not None:
                raise ValueError(
                    f"checkpoint.save_dir={save_dir}: another run is training there, "
                    f"{holder}; allowed: another folder, or this one when that run "
                    "has ended"
                ) from None
            logger.warning(
                "%s: %s: nothing keeps a second run out of this folder",
                path,
                error.strerror,
            )
            return False
    _held = lock, path
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = f"pid {os.getpid()} on host {socket.gethostname()}, since {since}\n"
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode(), 0)
    return True


def release() -> None:
    """Give up the lock that this process holds, if it does."""
    global _held
    if _held is not None:
        (lock, path), _held = _held, None
        try:
            if _is_at(lock, path):
                path.unlink()
        except OSError as error:
            logger.debug("%s: %s", path, error.strerror)
        os.close(lock)


@contextmanager
def released_after() -> Iterator[None]:
    """Give the lock up after training, in a process that may do other things then."""
    try:
        yield
    finally:
        release()


def _is_at(lock: int, path: Path) -> bool:
    """Whether the file that is open is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(lock: int) -> str:
    deadline = time.monotonic() + SECONDS_TO_BE_NAMED
    while True:
        text = os.pread(lock, 500, 0).decode(errors="replace").strip()
        if text or time.monotonic() > deadline:
            return text or "which has not said its pid"
        time.sleep(0.05)


def _forget_in_child() -> None:
    """A child would hold the lock for as long as it lives, which may be longer."""
    global _held
    if _held is not None:
        os.close(_held[0])
        _held = None


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(release)

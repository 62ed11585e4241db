"""One run per folder: a lock that ends with the process that holds it."""

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

LOCK = "training.lock"
HOLDER = "training.pid"


class FolderLock:
    """The system releases the lock of a dead process; children do not keep it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._lock = FileLock(self._folder / LOCK, timeout=1)

    def hold(self) -> bool:
        """Lock the folder until ``release`` or the end of the process.

        Returns:
            whether it is locked: some file systems have no locks.

        Raises:
            ValueError: another process has the lock; the message names it and its host.
        """
        try:
            self._lock.acquire()
        except Timeout:
            raise ValueError(
                f"checkpoint.save_dir={self._folder}: another run is training there, "
                f"{self._holder()}; allowed: another folder, or this one after it"
            ) from None
        except (OSError, NotImplementedError) as error:
            logger.warning(
                "%s: %s: a second run in this folder would not be noticed",
                *(self._folder / LOCK, getattr(error, "strerror", None) or error),
            )
            return False
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        (self._folder / HOLDER).write_text(
            f"pid {os.getpid()} on host {socket.gethostname()}, since {since}\n"
        )
        return True

    def release(self) -> None:
        """Release the lock, if this process has it."""
        if self._lock.is_locked:
            (self._folder / HOLDER).unlink(missing_ok=True)
            self._lock.release()

    def _holder(self) -> str:
        """The name of the process that has the lock; it writes it a moment later."""
        for _ in range(20):
            with suppress(OSError):
                if text := (self._folder / HOLDER).read_text().strip():
                    return text
            time.sleep(0.05)
        return "with an unknown pid"

"""One run a folder: a lock that ends with the process that holds it."""

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
    """The system takes it back from a dead process; children do not keep it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._lock = FileLock(self._folder / LOCK, timeout=0)

    def hold(self) -> bool:
        """Lock the folder until ``release``, or the process's end.

        Returns:
            whether it is locked: some file systems have no locks.

        Raises:
            ValueError: another process has it; the message names process and host.
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
                "%s: %s: nothing keeps a second run out of this folder",
                *(self._folder / LOCK, getattr(error, "strerror", None) or error),
            )
            return False
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        (self._folder / HOLDER).write_text(
            f"pid {os.getpid()} on host {socket.gethostname()}, since {since}\n"
        )
        return True

    def release(self) -> None:
        """Give the lock up, if this process has it."""
        if self._lock.is_locked:
            (self._folder / HOLDER).unlink(missing_ok=True)
            self._lock.release()

    def _holder(self) -> str:
        """Another has the lock, and writes its name a moment later."""
        for _ in range(20):
            with suppress(OSError):
                if text := (self._folder / HOLDER).read_text().strip():
                    return text
            time.sleep(0.05)
        return "which has not said its pid"

"""What a result was made with: versions of packages, commit, machine."""

import functools
import os
import platform
import re
import subprocess
from pathlib import Path

from ..data.fingerprints import installed_versions
from ..installation import CLONE

PACKAGES = ("torch", "ve-fairseq", "fairseq-fixed", "fairseq", "numpy", "triton")


@functools.cache
def versions() -> dict[str, str]:
    """Python and the installed ones of the packages that decide a result."""
    return installed_versions(PACKAGES)


@functools.cache
def commit() -> str:
    """The repository's commit, "+changes" if the working tree differs from it.

    The version where the package is installed without its repository, and "unknown"
    where git does not answer.
    """
    if CLONE is None:
        found = installed_versions(["fairseq-transnormer"])
        return f"version {found.get('fairseq-transnormer', 'unknown')}"
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head[:12] + ("+changes" if changed else "")


def machine() -> str:
    """Host name, processor and cores of this process."""
    info = Path("/proc/cpuinfo")
    found = info.exists() and re.search(r"model name\s*: (.*)", info.read_text("utf-8"))
    processor = found[1] if found else platform.machine()
    return f"{platform.node()}, {processor}, {len(os.sched_getaffinity(0))} cores"


def _git(*words: str) -> str:
    given = {"cwd": CLONE, "capture_output": True, "text": True, "check": True}
    return subprocess.run(["git", *words], **given).stdout.strip()

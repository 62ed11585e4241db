"""report.json: what a folder of binary data holds and how it was made."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_prep.folders.destination import listed_files
from data_prep.folders.errors import InputError
from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.fingerprints import file_sha256, installed_versions

SOFTWARE = ("ve-fairseq", "fairseq", "fairseq-fixed", "sentencepiece", "tiktoken")


def make_report(
    settings: dict[str, Any],
    dictionary_size: int,
    splits: dict[str, dict[str, int]],
    folder: Path,
    files: Iterable[Path],
) -> dict[str, Any]:
    """The report's content. It has no dates: the same input gives the same report."""
    return {
        "settings": settings,
        "dictionary_size": dictionary_size,
        "splits": splits,
        "files": file_records(folder, files),
        "software": software(),
    }


def file_records(folder: Path, files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of each file by its name in ``folder``."""
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": file_sha256(path),
        }
        for path in files
    }


def read_report(folder: Path, name: str = REPORT) -> dict[str, Any]:
    """The folder's report; raises InputError if it cannot be understood."""
    path = folder / name
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a report of data_prep: {error}") from error
    listed_files(report, path)
    return report


def check_files(folder: Path, files: dict[str, dict[str, Any]], listing: str) -> None:
    """Compares each file with ``listing``; raises InputError naming the first that is
    missing or differs."""
    for name, recorded in files.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: no such file, but {listing} lists it")
        found = path.stat().st_size
        if found != recorded["bytes"]:
            raise InputError(
                f"{path}: {found} bytes, expected {recorded['bytes']}, as {listing} "
                "says: truncated or changed since it was made"
            )
        if file_sha256(path) != recorded["sha256"]:
            raise InputError(
                f"{path}: changed since it was made: its sha256 is not that in "
                f"{listing}"
            )


def print_report(report: dict[str, Any], dest: Path) -> None:
    """The report for the eye, on stdout."""
    print(f"{dest}: dictionary of {report['dictionary_size']:,} entries")
    for split, counts in report["splits"].items():
        print("  " + f"{split}: " + ", ".join(f"{n:,} {k}" for k, n in counts.items()))
    for name, record in report["files"].items():
        print(f"  {record['sha256']}  {name}")


def software() -> dict[str, str]:
    """Versions of what writes and encodes."""
    return installed_versions(SOFTWARE)

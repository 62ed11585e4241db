"""Text files: their checksums and encoding in one pass, and their lines."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq_transnormer.data.fingerprints import file_sha256

# Text mode with universal ends of lines on purpose: fairseq's own binariser reads lines
# the same way. But it takes a byte order mark for a part of the first word.
ENCODING = "utf-8-sig"


@dataclass(frozen=True)
class TextFile:
    """A file that was read once from end to end and is UTF-8 throughout."""

    path: Path
    name: str
    sha256: str
    text_sha256: str  # without mark, with "\n" alone, without white space at the end
    line_count: int
    has_text: bool
    has_nul: bool = False  # as UTF-8 that is no text has

    def fingerprint(self) -> str:
        """Names the file and its content, for comparing two runs' settings."""
        return f"{self.name} sha256:{self.sha256[:16]}"

    def lines(self) -> Iterator[str]:
        """The lines, with their ends."""
        with open(self.path, encoding=ENCODING) as lines:
            yield from lines


def scan(path: Path, name: str | None = None) -> TextFile:
    """Read the file; raise ValueError where it is not UTF-8."""
    digest, line_count, has_text, has_nul = hashlib.sha256(), 0, False, False
    held: list[str] = []  # white space that may be the end
    try:
        with open(path, encoding=ENCODING) as lines:
            for line in lines:
                line_count += 1
                has_nul = has_nul or "\0" in line
                kept = line.rstrip()
                if kept:
                    digest.update("".join([*held, kept]).encode())
                    held, has_text = [], True
                held.append(line[len(kept) :])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8{_wrong_byte(path)}") from error
    sums = file_sha256(path), digest.hexdigest()
    return TextFile(path, name or path.name, *sums, line_count, has_text, has_nul)


def check_unchanged(files: Iterable[TextFile]) -> None:
    """Raise ValueError for a file that has changed since it was scanned."""
    for file in files:
        if file_sha256(file.path) != file.sha256:
            raise ValueError(f"{file.path} changed while it was read; begin again")


def _wrong_byte(path: Path) -> str:
    """Which byte of which line no UTF-8 has."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f": byte 0x{line[error.start]:02x} in line {number}"
    return ""


def read_lines(files: Iterable[TextFile]) -> Iterator[str]:
    """The lines of all files; a blank line stands between one file and the next.

    The blank line becomes a lone end-of-sentence in the binary files: that is how
    WikiText's articles are set apart, and where ``--sample-break-mode complete_doc``
    starts a new document. A file that ends in one gets no second.
    """
    line = ""
    for number, file in enumerate(files):
        if number and line.strip():
            yield "\n"
        for line in file.lines():
            yield line


def place_of(line: str, files: Iterable[TextFile]) -> str | None:
    """The first file and line, from 1, that has this text."""
    for file in files:
        for number, found in enumerate(file.lines(), 1):
            if found.strip() == line.strip():
                return f"{file.path}, line {number}"
    return None

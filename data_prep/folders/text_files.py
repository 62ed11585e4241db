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
    """A file that was read once from end to end and is text in UTF-8.

    ``text_sha256`` passes over a mark, kinds of ends of lines, and white space at the
    end. ``line_count`` counts line feeds.
    """

    path: Path
    name: str
    sha256: str
    text_sha256: str
    line_count: int
    has_text: bool

    def fingerprint(self) -> str:
        """Names the file and its content, for comparing two runs' settings."""
        return f"{self.name} sha256:{self.sha256[:16]}"

    def lines(self) -> Iterator[str]:
        """The lines, each with an end."""
        with open(self.path, encoding=ENCODING) as lines:
            yield from (line if line.endswith("\n") else f"{line}\n" for line in lines)


def scan(path: Path, name: str | None = None) -> TextFile:
    """Read the file; raise ValueError where it is not UTF-8, or has NUL bytes."""
    digest, text_digest, number, has_text = hashlib.sha256(), hashlib.sha256(), 0, False
    white = ""  # that may be the end
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            digest.update(line)
            if b"\0" in line:
                raise ValueError(f"{path}: binary, with NUL bytes in line {number}")
            try:
                text = line.decode(ENCODING if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = f"byte 0x{error.object[error.start]:02x} in line {number}"
                raise ValueError(f"{path}: not UTF-8: {byte}") from error
            text = text.replace("\r\n", "\n").replace("\r", "\n")
            kept = text.rstrip()
            if kept:
                text_digest.update((white + kept).encode())
                white, has_text = "", True
            white += text[len(kept) :]
    sums = digest.hexdigest(), text_digest.hexdigest()
    return TextFile(path, name or path.name, *sums, number, has_text)


def check_unchanged(files: Iterable[TextFile]) -> None:
    """Raise ValueError for a file that has changed since it was scanned."""
    for file in files:
        if file_sha256(file.path) != file.sha256:
            raise ValueError(f"{file.path} changed while it was read; begin again")


def read_lines(files: Iterable[TextFile]) -> Iterator[str]:
    """The lines of all files; a blank line stands between one file and the next.

    The blank line becomes a lone end of sentence in the binary files, as between
    WikiText's articles. There ``--sample-break-mode complete_doc`` starts a new
    document. A file that ends in one gets no second, and an empty file none.
    """
    line = "\n"
    for file in files:
        is_apart = not line.strip()
        for line in file.lines():
            if not is_apart:
                yield "\n"
            is_apart = True
            yield line

"""Text files: their checksum and encoding in one pass, and their lines."""

import codecs
import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class TextFile:
    """A file that was read once from end to end and is UTF-8 throughout."""

    path: Path
    name: str
    sha256: str
    text_sha256: str  # without mark, with "\n" alone, without white space at the end
    newline_count: int  # about the number of lines: for progress bars
    has_text: bool
    has_nul: bool = False  # as UTF-8 that is no text has

    def fingerprint(self) -> str:
        """Names the file and its content, for comparing two runs' settings."""
        return f"{self.name} sha256:{self.sha256[:16]}"


def scan(path: Path, name: str | None = None) -> TextFile:
    """Reads the file once; raises ValueError where it cannot be read as UTF-8."""
    digest, text_digest = hashlib.sha256(), hashlib.sha256()
    ends, held = io.IncrementalNewlineDecoder(None, translate=True), ""
    newline_count, has_text, has_nul = 0, False, False
    offset, rest = 0, b""  # rest: the begun character at a chunk's end
    try:
        with open(path, "rb") as file:
            chunk = b"start"
            while chunk:
                chunk = file.read(CHUNK_BYTES)
                rest += chunk
                text, used = _decode(rest, final=not chunk, path=path, offset=offset)
                if not offset:
                    text = text.removeprefix("\ufeff")
                digest.update(chunk)
                held += ends.decode(text, final=not chunk)
                kept = held.rstrip()
                text_digest.update(kept.encode())
                held = held[len(kept) :]
                newline_count += chunk.count(b"\n")
                has_text = has_text or bool(text.strip())
                has_nul = has_nul or b"\0" in chunk
                offset, rest = offset + used, rest[used:]
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    return TextFile(
        path,
        name or path.name,
        digest.hexdigest(),
        text_digest.hexdigest(),
        newline_count,
        has_text,
        has_nul,
    )


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
        # Text mode on purpose: fairseq's own binariser reads lines the same way. But
        # it takes a byte order mark for a part of the first word.
        with open(file.path, encoding="utf-8-sig") as lines:
            for line in lines:
                yield line


def place_of(line: str, files: Iterable[TextFile]) -> str | None:
    """The first file and line, from 1, that has this text."""
    for file in files:
        with open(file.path, encoding="utf-8-sig") as lines:
            for number, found in enumerate(lines, 1):
                if found.strip() == line.strip():
                    return f"{file.path}, line {number}"
    return None


def _decode(content: bytes, final: bool, path: Path, offset: int) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(content, "strict", final)
    except UnicodeDecodeError as error:
        at = offset + error.start
        with open(path, "rb") as file:
            line = file.read(at).count(b"\n") + 1
        raise ValueError(
            f"{path}: not UTF-8: byte 0x{content[error.start]:02x} at offset {at}, "
            f"line {line}; convert the file to UTF-8"
        ) from error

"""Labelled texts in memory: examples, and the lines that could not become one."""

from dataclasses import dataclass, field
from typing import Any

SHOWN_LINES = 5
# More than this is no blemish of the file: it is another file, or a damaged one.
MAX_MALFORMED_SHARE = 0.01
MIN_MALFORMED_LINES = 10


@dataclass(frozen=True)
class Example:
    """One text or pair, from ``line`` of its file.

    ``label`` is None where the source has none.
    """

    index: str
    text: str
    pair: str | None
    label: str | None
    line: int


@dataclass
class Malformed:
    """The lines of one file that were left out, counted by reason.

    With ``allowed`` False the first one is an ValueError instead.
    """

    where: str
    allowed: bool
    lines: int = 0
    skipped: int = 0
    reasons: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of_split(cls, where: str, split: str) -> "Malformed":
        """Of a benchmark's split: a test split needs an answer to every example."""
        return cls(where, allowed=not split.startswith("test"))

    def skip(self, line: int, reason: str) -> None:
        """Counts ``line``, whose fault is ``reason``, or raises ValueError."""
        if not self.allowed:
            raise ValueError(f"{self.where}, line {line}: {reason}")
        self.skipped += 1
        self.reasons.setdefault(reason, []).append(line)

    def finish(self, lines: int) -> None:
        """Raises ValueError if more of ``lines`` lines are malformed than can be."""
        self.lines = lines
        if self.skipped > max(MIN_MALFORMED_LINES, lines * MAX_MALFORMED_SHARE):
            raise ValueError(
                f"{self.where}: {self.skipped:,} of {lines:,} lines are malformed "
                f"({self.sentence()}); allowed is 1 in 100: it is damaged, or another "
                "format"
            )

    def sentence(self) -> str:
        """The reasons, with their first lines."""
        return "; ".join(
            f"{len(lines):,} with {reason}: line {', '.join(map(str, _shown(lines)))}"
            + (", ..." if len(lines) > SHOWN_LINES else "")
            for reason, lines in self.reasons.items()
        )

    def record(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "file": self.where,
            "lines": self.lines,
            "skipped": self.skipped,
            "reasons": {
                reason: {"lines": len(lines), "first": _shown(lines)}
                for reason, lines in self.reasons.items()
            },
        }


@dataclass
class LabelledSplit:
    """A split's examples, and what of its file is none."""

    examples: list[Example]
    malformed: Malformed


def _shown(lines: list[int]) -> list[int]:
    return lines[:SHOWN_LINES]

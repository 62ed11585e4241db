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
class LabelledSplit:
    """A split's examples, and the lines of its file ``where`` that were left out.

    Where ``strict`` the first such line is a ValueError instead. ``reasons`` has the
    lines by what is wrong with them.
    """

    where: str
    strict: bool
    examples: list[Example] = field(default_factory=list)
    lines: int = 0
    reasons: dict[str, list[int]] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """How many lines were left out."""
        return sum(map(len, self.reasons.values()))

    def skip(self, line: int, reason: str) -> None:
        """Count ``line``, whose fault is ``reason``, or raise ValueError."""
        if self.strict:
            raise ValueError(f"{self.where}, line {line}: {reason}")
        self.reasons.setdefault(reason, []).append(line)

    def finish(self, lines: int) -> None:
        """Raise ValueError if more of ``lines`` lines are malformed than can be."""
        self.lines = lines
        if self.skipped > max(MIN_MALFORMED_LINES, lines * MAX_MALFORMED_SHARE):
            raise ValueError(
                f"{self.where}: {self.skipped:,} of {lines:,} lines are malformed "
                f"({self.left_out()}); allowed is 1 in 100: it is damaged, or another "
                "format"
            )

    def left_out(self) -> str:
        """The reasons, with their first lines."""
        return "; ".join(
            f"{len(lines):,} with {reason}: line "
            + ", ".join(map(str, lines[:SHOWN_LINES]))
            + (", ..." if len(lines) > SHOWN_LINES else "")
            for reason, lines in self.reasons.items()
        )

    def record(self) -> dict[str, Any]:
        """The lines that were left out, for report.json."""
        return {
            "file": self.where,
            "lines": self.lines,
            "skipped": self.skipped,
            "reasons": {
                reason: {"lines": len(lines), "first": lines[:SHOWN_LINES]}
                for reason, lines in self.reasons.items()
            },
        }

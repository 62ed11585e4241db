"""A mutant: one small change of the code that some test must notice."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One text of one file, and what takes its place.

    Attributes:
        name: AREA/WHAT, such as "ops/causal-mask".
        file: path in the repository.
        old: a text that stands there once.
        new: what makes the code wrong.
        tests: arguments for pytest, separated by blanks; one of them must fail.
        interpreted: whether its tests run Triton's interpreter, which needs a process
            of its own.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    interpreted: bool = False

    @property
    def area(self) -> str:
        """What the first part of the name says."""
        return self.name.split("/")[0]

    def fault(self, root: Path) -> str | None:
        """Why it does not fit the code below ``root``, or None."""
        path = root / self.file
        if not path.is_file():
            return f"{self.name}: there is no {self.file}"
        found = path.read_text(encoding="utf-8").count(self.old)
        if found != 1:
            return f"{self.name}: {self.file} has {self.old!r} {found} times, not once"
        if self.old == self.new:
            return f"{self.name}: changes nothing"
        return None

    def apply(self, root: Path) -> None:
        """Change the file below ``root``."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")

"""Changes of the code that the tests must notice; see docs/contributing.md.

A file of mutants has such parts:

    @@ file that they change
    tests that must notice; behind TRITON_INTERPRET=1 they run in the interpreter
    name of a mutant
    -text that stands in the file once
    +text in its place

Each holds until the next of its kind.
"""

from collections.abc import Iterator
from pathlib import Path

from .mutant import Mutant

INTERPRETED = "TRITON_INTERPRET=1 "


def read_mutants(path: Path) -> Iterator[Mutant]:
    """The mutants of a file."""
    file = tests = name = ""
    texts: dict[str, list[str]] = {"-": [], "+": []}

    def mutant() -> Iterator[Mutant]:
        if texts["-"]:
            old, new = ("\n".join(lines) for lines in texts.values())
            own = tests.removeprefix(INTERPRETED)
            yield Mutant(name, file, old, new, own, own != tests)
        for lines in texts.values():
            lines.clear()

    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:1] in texts:
            texts[line[0]].append(line[1:])
            continue
        yield from mutant()
        if line.startswith("@@ "):
            file = line[3:]
        elif line.startswith((INTERPRETED, "tests/")):
            tests = line
        else:
            name = line
    yield from mutant()


MUTANTS = [
    mutant
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for mutant in read_mutants(path)
]

"""Changes of the code that the tests must notice; see docs/contributing.md.

A file of mutants has such parts:

    @@ file that they change
    tests that must fail; TRITON_INTERPRET=1 in front: in Triton's interpreter
    name of a mutant
    -text that stands in the file once
    +text in its place

Each holds until the next of its kind.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from .mutant import Mutant

INTERPRETED = "TRITON_INTERPRET=1 "


def read_mutants(path: Path) -> Iterator[Mutant]:
    """The mutants of a file."""
    file = tests = name = ""
    lines = path.read_text(encoding="utf-8").splitlines()
    for is_change, part in itertools.groupby(lines, lambda line: line[:1] in {*"-+"}):
        if is_change:
            texts = [*part]
            old, new = ("\n".join(t[1:] for t in texts if t[0] == c) for c in "-+")
            own = tests.removeprefix(INTERPRETED)
            yield Mutant(name, file, old, new, own, own != tests)
            continue
        for line in part:
            if line.startswith("@@ "):
                file = line[3:]
            elif line.startswith((INTERPRETED, "tests/")):
                tests = line
            else:
                name = line


MUTANTS = [
    mutant
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for mutant in read_mutants(path)
]

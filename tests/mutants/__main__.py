"""Whether the tests notice changes of the code: python -m tests.mutants [NAME ...]

NAME is a mutant's or an area's, such as ops; all by default. Ends with 1 if a mutant
survives or does not fit the code any more. docs/contributing.md has more.
"""

import argparse
import sys
import time
from collections import Counter

from tests.paths import ROOT

from . import MUTANTS
from .runner import failing_before, import_what_tests_need, run_mutants


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.description = __doc__
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants or areas")
    parser.add_argument("--list", action="store_true", help="print their names only")
    parser.add_argument(
        "--not-before",
        action="store_true",
        help="leave out running the tests on the code as it is, which must pass",
    )
    options = parser.parse_args(arguments)
    known = {m.name for m in MUTANTS} | {m.area for m in MUTANTS}
    for name in options.names:
        if name not in known:
            areas = ", ".join(dict.fromkeys(m.area for m in MUTANTS))
            parser.error(f"{name!r}; allowed: --list's names, and the areas {areas}")
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.names or {mutant.name, mutant.area} & set(options.names)
    ]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    begun = time.monotonic()
    import_what_tests_need()
    if not options.not_before and failing_before(chosen, ROOT, _tell):
        _tell("these tests fail on the code as it is, so that no mutant was tried")
        return 1
    outcome = run_mutants(chosen, ROOT, _tell)
    killed = Counter(mutant.area for mutant in outcome["killed"])
    for area, count in Counter(mutant.area for mutant in chosen).items():
        _tell(f"{area}: {killed[area]} of {count}")
    for state in ("survived", "broken"):
        for mutant in outcome[state]:
            _tell(f"{state}: {mutant.name}")
    minutes = (time.monotonic() - begun) / 60
    _tell(f"{killed.total()} of {len(chosen)} killed in {minutes:.1f} min")
    return 0 if killed.total() == len(chosen) else 1


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

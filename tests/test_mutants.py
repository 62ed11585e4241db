"""What shows that tests can fail: the list of mutants, its runner, and no early end."""

from tests.mutants import MUTANTS
from tests.paths import ROOT


def test_every_mutant_fits_the_code():
    """Its text stands there once; whoever changes it changes the list."""
    faults = [mutant.fault(ROOT) for mutant in MUTANTS]
    assert not any(faults), "\n".join(filter(None, faults))
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_mutant_leaves_code_that_python_reads():
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        compile(text.replace(mutant.old, mutant.new), mutant.name, "exec")


def test_the_tests_of_every_mutant_are_there():
    for test in {test for mutant in MUTANTS for test in mutant.tests.split()}:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test

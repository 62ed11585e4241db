"""The table of what is changed in fairseq: it is applied, in order, and it is all."""

import ast
from collections import defaultdict

from fairseq_transnormer.fairseq_patches.apply import (
    AT_IMPORT,
    AT_TRAINING_START,
    apply,
    resolve,
    wrap,
)
from tests.paths import PACKAGE


def test_each_function_has_its_rows_around_it_in_the_tables_order():
    rows = defaultdict(list)
    for patch in AT_IMPORT:
        rows[patch.owner, patch.name].append(patch.around)
    for (owner, name), expected in rows.items():
        found = getattr(getattr(resolve(owner), name), "wrapped_in", ())
        assert list(found) == expected, (owner, name)


def test_asked_again_nothing_changes():
    before = [getattr(resolve(patch.owner), patch.name) for patch in AT_IMPORT]
    apply()
    assert before == [getattr(resolve(patch.owner), patch.name) for patch in AT_IMPORT]


def test_a_row_names_what_fairseq_has_and_says_why():
    for patch in (*AT_IMPORT, *AT_TRAINING_START):
        assert callable(getattr(resolve(patch.owner), patch.name))
        assert len(patch.why.split()) >= 3, patch.name


def changes_to_fairseq(source: str) -> list[int]:
    """Lines that set an attribute of what is imported from fairseq, torch or numpy."""
    tree = ast.parse(source)
    foreign = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [(a.asname or a.name).split(".")[0] for a in node.names]
            module = getattr(node, "module", None) or node.names[0].name
            level = getattr(node, "level", 0)
            if not level and module.split(".")[0] in ("fairseq", "torch", "numpy"):
                foreign.update(names)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
            targets = [ast.Attribute(node.args[0], "")]
        else:
            continue
        for target in targets:
            owner = target.value if isinstance(target, ast.Attribute) else None
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in foreign:
                found.append(node.lineno)
    return found


def test_nothing_else_changes_fairseq():
    patches = PACKAGE / "fairseq_patches"
    for path in PACKAGE.rglob("*.py"):
        if not path.is_relative_to(patches):
            assert not changes_to_fairseq(path.read_text(encoding="utf-8")), path
    source = (patches / "workers.py").read_text(encoding="utf-8")
    assert changes_to_fairseq(source)  # Heartbeat in the place of fairseq's class


def test_later_rows_lie_outside():
    class Owner:
        def call(self, text):
            return text

        @staticmethod
        def fixed(text):
            return text

    def around(mark):
        return lambda original, *given: f"{mark}{original(*given)}{mark}"

    first, second = around("1"), around("2")
    for name in ("call", "fixed"):
        for each in (first, second, first):
            wrap(Owner, name, each)
    assert Owner().call("x") == Owner.fixed("x") == "21x12"

"""The table of what is changed in fairseq: it is short, applied once, and it is all."""

import ast

from fairseq_transnormer.plugin import compatibility
from fairseq_transnormer.plugin.compatibility import PATCHES
from tests.paths import PACKAGE


def test_the_table_is_applied_once():
    functions = [patch for patch in PATCHES if not patch.sets]
    owners = [compatibility._owners(patch.owner)[0] for patch in functions]
    before = [getattr(o, p.name) for o, p in zip(owners, functions, strict=True)]
    compatibility.apply()
    after = [getattr(o, p.name) for o, p in zip(owners, functions, strict=True)]
    assert before == after
    assert not [each for each in after if hasattr(each.__wrapped__, "__wrapped__")]


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
    for path in PACKAGE.rglob("*.py"):
        assert not changes_to_fairseq(path.read_text(encoding="utf-8")), path

"""Imports run down only: ops know nothing above them, modules no models."""

import ast

import pytest

from tests.paths import PACKAGE

FORBIDDEN = {
    "ops": ("fairseq", "fairseq_transnormer"),
    "modules": ("fairseq", "fairseq_transnormer.models", "hydra", "omegaconf"),
}
# what a floor may import of this package
ALLOWED = {"ops": "fairseq_transnormer.ops", "modules": "fairseq_transnormer.ops"}


def imported_modules(source, package):
    """Absolute names of what a file of ``package`` imports, in functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def is_inside(name, package):
    return name == package or name.startswith(package + ".")


def offences(source, floor, folders=()):
    """folders: those inside the floor in which the file lies."""
    package = f"fairseq_transnormer.{floor}"
    for name in imported_modules(source, ".".join((package, *folders))):
        if is_inside(name, package) or is_inside(name, ALLOWED[floor]):
            continue
        # `from .. import ops` passes through the package's own name
        if name == "fairseq_transnormer" and floor == "modules":
            continue
        if any(is_inside(name, each) for each in FORBIDDEN[floor]):
            yield name


@pytest.mark.parametrize(
    ("floor", "path"),
    [(f, p) for f in FORBIDDEN for p in sorted((PACKAGE / f).rglob("*.py"))],
    ids=lambda value: getattr(value, "name", value),
)
def test_imports_run_down(floor, path):
    folders = path.parent.relative_to(PACKAGE / floor).parts
    assert list(offences(path.read_text(encoding="utf-8"), floor, folders)) == []


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        ("ops", "from ..modules import GLU"),
        ("ops", "from .. import modules"),
        ("ops", "def f():\n    import fairseq.utils"),
        ("ops", "from fairseq import utils"),
        ("modules", "from ..models import language_model"),
        ("modules", "from .. import models"),
        ("modules", "from fairseq_transnormer.models.variants import TINY"),
        ("modules", "import omegaconf"),
    ],
)
def test_the_rule_catches(floor, source):
    assert list(offences(source, floor))


def test_the_rule_counts_the_folders_of_a_floor():
    assert not list(offences("from ..states import join_states", "ops", ["triton_ops"]))
    assert list(offences("from ...modules import GLU", "ops", ["triton_ops"]))

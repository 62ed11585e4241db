"""Who may import whom, and how large packages are; docs/architecture.md has it."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGE = "fairseq_transnormer"
# room -> rooms that its files may import; a loose file of the package is its own room,
# and so are folders and files of a room that stand here by name
ALLOWED = {
    "ops": set(),
    "data": set(),
    "missing_packages": set(),
    "cli": {"data", "missing_packages"},
    "outputs": {"data"},
    "devices": set(),
    "installation": set(),
    "checkpoints": {"data", "modules"},
    "modules": {"ops"},
    "plugin": {"checkpoints", "data", "missing_packages", "modules", "ops"},
    "training": {
        *("checkpoints", "data", "devices", "installation", "modules", "ops"),
        *("plugin", "verify"),
    },
    "__init__": set(),
    "__main__": {"cli"},
    "verify": {"data", "modules", "ops"},
    "verify_command": {"devices", "ops", "outputs", "verify"},
    "hf": {"checkpoints", "data", "modules", "ops"},
    "inference": {
        *("checkpoints", "data", "devices", "hf"),
    },
    "analysis": {
        *("checkpoints", "cli", "data", "devices", "inference", "modules", "ops"),
        "outputs",
    },
    "reproduce": {
        *("analysis", "checkpoints", "cli", "data", "installation"),
        *("modules", "plugin", "training"),
    },
    "data_prep.folders": {"data", "outputs", "plugin"},
    "data_prep.wikitext": {"data_prep.folders"},
    "data_prep.own_text": {"data", "data_prep.folders"},
    "data_prep.documentation": {"data", "data_prep.folders"},
    "data_prep.symbols": {"data", "data_prep.folders"},
    "data_prep.long_range_arena": {"cli", "data", "data_prep.folders"},
    "data_prep.labelled_texts": {"checkpoints", "data", "data_prep.folders"},
    "data_prep": {"cli"},
    "examples": {"checkpoints", "data", "modules"},
    "benchmarks": {
        *("__init__", "analysis", "checkpoints", "cli", "data", "devices", "hf"),
        *("inference", "modules", "ops", "outputs", "plugin"),
    },
}
# most lines of Python: what a package has, and little more
LINES = {
    f"{PACKAGE}/analysis": 2_155,
    f"{PACKAGE}/checkpoints": 2_470,
    f"{PACKAGE}/data": 1_140,
    f"{PACKAGE}/hf": 1_420,
    f"{PACKAGE}/inference": 1_930,
    f"{PACKAGE}/modules": 5_500,
    f"{PACKAGE}/ops": 8_500,
    f"{PACKAGE}/plugin": 2_565,
    f"{PACKAGE}/reproduce": 4_095,
    f"{PACKAGE}/training": 3_305,
    "benchmarks": 3_750,
    "data_prep": 5_540,
    "tests": 38_735,
}
# most files, and words of pages
FILES = {"configs": 60, "results": 80}
WORDS = {"README.md": 1_100, "docs/*.md": 27_000, "configs/README.md": 400}
# rooms for plain PyTorch, and what they must do without
WITHOUT_FAIRSEQ = (
    *("ops", "modules", "data", "checkpoints", "hf", "inference", "examples"),
)
FRAMEWORKS = ("fairseq", "fairseq_cli", "hydra")


def room_of(module: str) -> str | None:
    """The room of a dotted name; None for other packages.

    Of the others' rooms each is a folder, and their loose files are one.
    """
    top, *rest = module.split(".")
    if top == PACKAGE:
        inner = ".".join(rest[:2])
        return inner if inner in ALLOWED else rest[0] if rest else "__init__"
    if rest and f"{top}.{rest[0]}" in ALLOWED:
        return f"{top}.{rest[0]}"
    return top if top in ALLOWED else None


parsed = functools.cache(ast.parse)  # most files several times


def imported(source: str, package: list[str], types: bool = True) -> Iterator[str]:
    """Absolute names of what a file of a package imports, in functions too.

    types: also what only a type checker imports.
    """
    hidden = set()
    for node in ast.walk(parsed(source)):
        if node in hidden:
            continue
        if not types and isinstance(node, ast.If):
            if ast.unparse(node.test) == "TYPE_CHECKING":
                hidden |= {*node.body}
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += [node.module] if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def names_of_files() -> Iterator[tuple[str, Path]]:
    """All source files, each with its dotted name."""
    for folder in (PACKAGE, "benchmarks", "data_prep", "examples", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def arrows(source: str, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """(room, imported room) of a file, without arrows inside a room."""
    package = module.split(".")
    here = room_of(module)
    for name in imported(source, package if is_package else package[:-1]):
        there = room_of(name)
        # `from . import x` of the package's own files passes through its name
        if there is not None and there != here:
            yield here, there


def all_arrows() -> dict[tuple[str, str], list[str]]:
    found = {}
    for module, path in names_of_files():
        is_package = path.name == "__init__.py"
        source = path.read_text(encoding="utf-8")
        for arrow in arrows(source, module, is_package):
            found.setdefault(arrow, []).append(str(path.relative_to(ROOT)))
    return found


def floors(table: dict[str, set[str]]) -> dict[str, int]:
    """Room -> floor, one above the highest that it imports.

    Raises:
        ValueError: rooms import each other in a circle.
    """
    placed = {}
    while len(placed) < len(table):
        ready = [
            room for room in table if room not in placed and table[room] <= {*placed}
        ]
        if not ready:
            raise ValueError(f"circle among {sorted({*table} - {*placed})}")
        for room in ready:
            placed[room] = 1 + max((placed[each] for each in table[room]), default=0)
    return placed


def test_rooms_import_what_the_table_allows():
    found = all_arrows()
    assert len(found) > 30
    wrong = {
        f"{a} -> {b}": files for (a, b), files in found.items() if b not in ALLOWED[a]
    }
    assert not wrong


def test_the_table_allows_nothing_that_no_file_needs():
    used = {*all_arrows()}
    assert not {(a, b) for a in ALLOWED for b in ALLOWED[a]} - used


def test_there_is_no_circle():
    assert max(floors(ALLOWED).values()) <= 10


def test_files_of_a_room_import_each_other_in_no_circle():
    files = dict(names_of_files())
    table = {}
    for module, path in files.items():
        package = module.split(".")
        if path.name != "__init__.py":
            package = package[:-1]
        names = {
            name if name in files else name.rpartition(".")[0]
            for name in imported(path.read_text(encoding="utf-8"), package, types=False)
        }
        # a package's face hands on names of its own files
        faces = {each for each in names if module.startswith(f"{each}.")}
        table[module] = {each for each in names - faces if each in files} - {module}
    floors(table)


@pytest.mark.parametrize("room", WITHOUT_FAIRSEQ)
def test_plain_pytorch_needs_no_fairseq(room):
    for module, path in names_of_files():
        if room_of(module) == room:
            names = imported(path.read_text(encoding="utf-8"), module.split(".")[:-1])
            assert not [n for n in names if n.split(".")[0] in FRAMEWORKS], path


@pytest.mark.parametrize("folder", LINES)
def test_a_package_keeps_to_its_lines(folder):
    files = (ROOT / folder).rglob("*.py")
    assert sum(len(path.read_bytes().splitlines()) for path in files) <= LINES[folder]


@pytest.mark.parametrize("folder", FILES)
def test_a_folder_keeps_to_its_files(folder):
    """Of what git knows: a run may leave others."""
    found = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True
    )
    if found.returncode:
        pytest.skip("no git")
    assert 0 < len(found.stdout.splitlines()) <= FILES[folder]


@pytest.mark.parametrize("pages", WORDS)
def test_pages_keep_to_their_words(pages):
    texts = (path.read_text(encoding="utf-8") for path in ROOT.glob(pages))
    assert sum(len(text.split()) for text in texts) <= WORDS[pages]

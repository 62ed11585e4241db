"""``python -m PACKAGE COMMAND``: the lists of commands, and each one's ``--help``."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from fairseq_transnormer.cli import Subcommand, parsed, run
from fairseq_transnormer.outputs import OutputFile, OutputFolder
from tests.messages import refuses
from tests.paths import ROOT

PACKAGES = ("fairseq_transnormer", "benchmarks", "data_prep")
# seconds to import, which no --help needs
SLOW = {"fairseq", "hydra", "torch._dynamo", "datasets", "matplotlib", "transformers"}

# answers every --help, in a process of its own: commands whose parsers are signatures
# first, which import no torch
HELPS = """
import contextlib, importlib, io, sys
slow = {slow!r}
tables = []
for package in {packages!r}:
    door = importlib.import_module(package + ".__main__")
    tables += [([package, name], each.module) for name, each in door.COMMANDS.items()]
    for group, table in (("analyse", "ANALYSES"), ("lra", "COMMANDS")):
        if group in door.COMMANDS:
            nested = importlib.import_module(door.COMMANDS[group].module)
            tables += [
                ([package, group, name], each.module)
                for name, each in getattr(nested, table).items()
            ]
before = None
for words, module in sorted(tables, key=lambda each: ":" not in each[1]):
    if before is None and ":" not in module:
        import torch
        before = set(sys.modules)
        import fairseq_transnormer.ops
        print((slow | {{"triton", "numpy.testing"}}) & set(sys.modules) - before)
    out, code = io.StringIO(), None
    door = importlib.import_module(words[0] + ".__main__")
    with contextlib.redirect_stdout(out):
        try:
            code = door.main([*words[1:], "--help"])
        except SystemExit as end:
            code = end.code
    usage = " ".join(out.getvalue().split())
    imported = (slow | ({{"torch"}} if ":" in module else set())) & set(sys.modules)
    good = not code and usage.startswith("usage: python -m " + " ".join(words))
    print(good and not imported, *words, code, imported, usage[:80])
"""


def test_help_of_every_command_is_quick():
    """It imports nothing that takes long; nor do the ops, but torch."""
    answered = subprocess.run(
        [sys.executable, "-c", HELPS.format(packages=PACKAGES, slow=SLOW)],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    lines = answered.stdout.splitlines()
    lines.remove("set()")
    assert len(lines) > 30, answered.stderr
    assert [line for line in lines if not line.startswith("True")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_commands_are_listed(package, capsys):
    door = importlib.import_module(f"{package}.__main__")
    assert door.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in door.COMMANDS)
    for arguments in ([], ["nosuch"]):
        assert door.main(arguments) == 2
        error = capsys.readouterr().err
        assert all(name in error for name in [*arguments, *door.COMMANDS])


def test_a_command_gets_what_follows_its_name(tmp_path, monkeypatch):
    (tmp_path / "own_command.py").write_text("def main(arguments): return arguments")
    monkeypatch.syspath_prepend(tmp_path)
    commands = {"own": Subcommand("own_command", "a command")}
    assert run("program", "", commands, ["own", "own", "--x"]) == ["own", "--x"]
    assert run("program", "", commands, ["own"]) == 0


def add(
    file: Path,
    /,
    number: int,
    names: tuple[str, ...] = (),
    by: Literal["line", "file"] = "line",
    loud: bool = False,
) -> None:
    """Add them.

    Args:
        file: of numbers,
            or of words.
        number: to add.
    """
    print(file, number, names, by, loud)


COMMANDS = {"add": Subcommand(f"{__name__}:add", "adds")}


def test_a_signature_is_a_parser(capsys):
    words = "add x --number 3 --names a b --by file --loud".split()
    assert run("p", "", COMMANDS, words) == 0
    assert capsys.readouterr().out == "x 3 ('a', 'b') file True\n"
    with pytest.raises(SystemExit) as end:
        run("p", "", COMMANDS, ["add", "--help"])
    assert not end.value.code
    shown = capsys.readouterr().out
    for part in ("usage: p add", "Add them.", "of numbers, or of words.", "default: "):
        assert part in shown


def test_a_reader_that_has_seen_enough(tmp_path):
    """A closed pipe is no traceback."""
    (tmp_path / "many_lines.py").write_text(
        "def main(arguments):\n    for i in range(100000): print(i)\n"
    )
    program = (
        "from fairseq_transnormer.cli import *; import sys\n"
        "sys.exit(run('p', '', {'m': Subcommand('many_lines', '')}, ['m']))"
    )
    reader, writer = os.pipe()
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=writer, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        assert process.stderr.read() == ""
    assert process.returncode == 1


def written(file: OutputFile = None, folder: OutputFolder = Path(".")) -> None:
    """A command with outputs."""


def test_outputs_have_a_folder(tmp_path):
    file, folder = tmp_path / "a" / "b" / "out.json", tmp_path / "c" / "d"
    words = ["--file", str(file), "--folder", str(folder)]
    assert parsed(written, "p", words).keywords == {"file": file, "folder": folder}
    assert file.parent.is_dir() and not file.exists() and folder.is_dir()
    file.touch()
    assert parsed(written, "p", words).keywords == {"file": file, "folder": folder}
    # a file would take the place of these
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "link", tmp_path / "pipe", folder, Path(os.devnull)):
        with refuses(ValueError, "--file", other, "not a file"):
            parsed(written, "p", ["--file", str(other)])

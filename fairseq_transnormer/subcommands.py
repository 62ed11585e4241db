"""``python -m PACKAGE COMMAND``: a table of commands, and what each of them shares.

A command is a function of a module, as a rule ``main``. Only the module of the one that
is asked for is imported: the list, and a mistyped name, are answered in a moment.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .data.texts import print_utf8
from .data.whole_files import make_folder, make_folder_of


class Subcommand(NamedTuple):
    """A command.

    Attributes:
        module: dotted name; its ``function(arguments)`` returns the exit code, or None.
        summary: a line for the list of commands.
    """

    module: str
    summary: str
    function: str = "main"


def run(
    program: str,
    description: str,
    commands: Mapping[str, Subcommand],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command that the first argument names with the others.

    Args:
        program: for messages: ``python -m PACKAGE``.
        description: a line on what the commands are for.
        arguments: None takes the process's.

    Returns:
        The command's exit code; 2 without a known command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:
        print(f"{program}: error: stdout is closed", file=sys.stderr)
        return 2
    try:
        status = _run(program, description, commands, given)
        if not status:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        return 1  # the reader, such as head, has seen enough
    except OSError as error:  # stdout is full, as a rule
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}"
    except ValueError as error:
        from .ops.backend import BackendError

        if not isinstance(error, BackendError):
            raise
        message = str(error)
    finally:
        _let_go_of_stdout()
    print(f"{program} {given[0]}: error: {message}", file=sys.stderr)
    return 2


def _run(
    program: str,
    description: str,
    commands: Mapping[str, Subcommand],
    given: list[str],
) -> int:
    name, rest = (given[0], given[1:]) if given else ("", [])
    if name in ("-h", "--help"):
        print(listing(program, description, commands))
        return 0
    if name not in commands:
        told = f"there is no command {name!r}" if name else "a command is needed"
        allowed = ", ".join(commands)
        print(f"{program}: error: {told}; allowed: {allowed}", file=sys.stderr)
        return 2
    if os.environ.get("FAIRSEQ_TRANSNORMER_BACKEND"):
        # torch, which not every command imports
        from .ops.backend import resolve_backend

        resolve_backend("auto")
    command = commands[name]
    return getattr(importlib.import_module(command.module), command.function)(rest) or 0


def _let_go_of_stdout() -> None:
    """What cannot be written goes nowhere, or Python's end would be a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_parser(
    program: str, description: str | None, **options
) -> argparse.ArgumentParser:
    """A parser of ``python -m PROGRAM`` whose help shows the description as written.

    Args:
        program: PACKAGE COMMAND.
        options: of ``argparse.ArgumentParser``.
    """
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


def run_command(
    program: str,
    command: Callable[[], None],
    mistake: type[Exception] | tuple[type[Exception], ...] = (OSError, ValueError),
) -> int:
    """Run a command; its exit code, 2 after a line on stderr for a mistake.

    What it prints is UTF-8.

    Args:
        program: for the line.
        command: does the work.
        mistake: what it raises where the user's input does not do; by default what
            reading files and checking values raise.
    """
    print_utf8()
    try:
        command()
    except BrokenPipeError:
        raise  # no mistake: ``run`` ends in silence
    except mistake as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def output_file(text: str) -> Path:
    """An argparse type: a file to write, whose folder is made."""
    return _made(text, make_folder_of)


def output_folder(text: str) -> Path:
    """An argparse type: a folder to write files to, which is made."""
    return _made(text, make_folder)


def _made(text: str, make: Callable[[Path, str], None]) -> Path:
    path = Path(text)
    try:
        make(path, "path")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def listing(program: str, description: str, commands: Mapping[str, Subcommand]) -> str:
    """The commands with a line on each."""
    width = max(map(len, commands))
    lines = (f"  {name:{width}}  {each.summary}" for name, each in commands.items())
    return "\n".join(
        [
            f"usage: {program} COMMAND [options]; COMMAND --help lists them",
            "",
            description,
            "",
            *lines,
        ]
    )

"""``python -m PACKAGE COMMAND``: parsers from signatures, and how commands end.

A command is a function whose signature tyro reads: its parameters are the options, its
docstring is the help. Only the module of the requested command is imported. It imports
slow packages, such as torch, inside the function.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from typing import Any, NamedTuple

from .data.texts import print_utf8
from .missing_packages import explanation


class Subcommand(NamedTuple):
    """A command.

    Attributes:
        module: dotted name and function, ``package.module:function``. Without a
            function the module has a parser of its own: its ``main`` takes the
            arguments and returns the exit code.
        summary: a line for the list of commands.
    """

    module: str
    summary: str


def run(
    program: str,
    description: str,
    commands: Mapping[str, Subcommand],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command that the first argument names with the other arguments.

    Output is UTF-8. ValueError, OSError and ImportError are mistakes that the user can
    fix: they end in one line on stderr.

    Args:
        program: for messages: ``python -m PACKAGE``.
        description: a line on what the commands are for.
        arguments: None: those of the process.

    Returns:
        the command's exit code; 2 after an unknown command or such a line.
    """
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    if name in ("-h", "--help"):
        print(_listing(program, description, commands))
        return 0
    if name not in commands:
        problem = f"there is no command {name!r}" if name else "a command is needed"
        allowed = ", ".join(commands)
        print(f"{program}: error: {problem}; allowed: {allowed}", file=sys.stderr)
        return 2
    return run_command(
        f"{program} {name}",
        lambda: _called(commands[name], f"{program} {name}", rest[:-1]),
    )


def run_command(program: str, command: Callable[[], int | None]) -> int:
    """Run a command to its exit code; a mistake ends in one line that names it."""
    print_utf8()
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return 1  # the reader, such as head, has seen enough
    except ImportError as error:
        message = explanation(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}"
    except ValueError as error:
        message = str(error)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    finally:
        _let_go_of_stdout()
    print(f"{program}: error: {message}", file=sys.stderr)
    return 2


def _called(command: Subcommand, program: str, words: list[str]) -> int | None:
    name, _, function = command.module.partition(":")
    module = importlib.import_module(name)
    if function:
        return parsed(getattr(module, function), program, words)()
    return module.main(words)


def parsed(
    function: Callable[..., Any], program: str, words: Sequence[str]
) -> Callable[[], Any]:
    """Bind a function to the arguments of a command line.

    Raises:
        ValueError: the arguments do not fit its signature.
    """
    import tyro  # not needed by commands with a parser of their own

    @functools.wraps(function)
    def bound(*args: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **options)

    # an option's text on one line: tyro keeps some breaks
    function.__doc__ = re.sub(r"\n {8,}", " ", inspect.getdoc(function) or "")
    box = io.StringIO()
    config = (
        tyro.conf.DisallowNone,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.OmitArgPrefixes,
    )
    columns = {} if {"-h", "--help"} & {*words} else {"COLUMNS": "9999"}
    before = {name: os.environ.pop(name) for name in columns if name in os.environ}
    os.environ.update(columns)  # a narrow box would break paths
    try:
        with redirect_stderr(box):
            return tyro.cli(bound, prog=program, args=words, config=config)
    except SystemExit as end:
        if not end.code:
            raise
    finally:
        for name in columns:
            del os.environ[name]
        os.environ.update(before)
    problem = _unboxed(box.getvalue())
    raise ValueError(problem.replace(f"Missing from {program}", "missing"))


def _unboxed(box: str) -> str:
    """The text of tyro's box in one line: the problem and suggestions."""
    lines = [re.sub(r"^[│|] | *[│|]$", "", line) for line in box.splitlines()[1:-1]]
    # without options' help, which is indented
    lines = [line for line in lines if not line.startswith(" " * 8)]
    parts = re.split(r"\n[─-]+\n", "\n".join(lines))
    skipped = ("Argument help", "For full")
    return "; ".join(
        " ".join(each.split()) for each in parts if not each.startswith(skipped)
    )


def _let_go_of_stdout() -> None:
    """Discard output that cannot be written; Python would end with a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _listing(program: str, description: str, commands: Mapping[str, Subcommand]) -> str:
    """The commands, with one line for each."""
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

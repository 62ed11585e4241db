"""``fairseq-train --help`` with every option that the words before it bring.

argparse ends at --help, and fairseq adds the options of a model, a task, a criterion or
an optimizer after it has parsed which one it is.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from enum import Enum

from fairseq.models import MODEL_DATACLASS_REGISTRY

HELP = {"-h", "--help"}


def parse_or_show_all(
    parse, parser, input_args: Sequence[str] | None = None, *arguments, **keywords
):
    """Around options.py, ``parse_args_and_arch``: all options, then --help."""
    words = sys.argv[1:] if input_args is None else list(input_args)
    if not HELP & set(words):
        return parse(parser, input_args, *arguments, **keywords)
    chosen = [word for word in words if word not in HELP]
    # a missing DATA is no error here; by then the options are there. fairseq raises the
    # other two where no --arch or no --task has been chosen yet
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            parse(parser, chosen, *arguments, **keywords)
        except (SystemExit, RuntimeError, KeyError):
            pass
    _describe(parser, chosen)
    parser.print_help()
    parser.exit()


def _describe(parser: argparse.ArgumentParser, chosen: Sequence[str]) -> None:
    """Show types, and defaults: fairseq keeps a model's to its dataclass."""
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    known, _ = parser.parse_known_args([*_dummies(parser), *chosen])
    model = MODEL_DATACLASS_REGISTRY.get(getattr(known, "arch", None))
    defaults = {}
    if model is not None:
        for each in dataclasses.fields(model):
            if each.default is not dataclasses.MISSING:
                value = each.default
                defaults[each.name] = value.value if isinstance(value, Enum) else value
    for action in parser._actions:
        if action.dest in defaults:
            action.default = defaults[action.dest]
        if action.help is None:
            # else the formatter leaves the default out
            action.help = " "
        if action.option_strings and action.nargs != 0 and action.choices is None:
            name = getattr(action.type, "__name__", "str")
            if name in ("int", "float", "str"):
                action.metavar = name.upper()


def _dummies(parser: argparse.ArgumentParser) -> list[str]:
    """Words for the positional arguments that a parser wants."""
    return ["-" for action in parser._actions if not action.option_strings]

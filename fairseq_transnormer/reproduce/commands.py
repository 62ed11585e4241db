"""Commands that tables have: of what follows a training, and of what report draws."""

import re
import sys
from collections.abc import Iterable

from .errors import ReproduceError

# placeholders of a command after the training, of a figure's, and of each row's in it
AFTER = ("folder", "checkpoint", "data")
FIGURE = {"command": ("data", "output"), "each_row": ("row", "checkpoint")}


def filled(command: list[str], values: dict[str, str]) -> list[str]:
    """A command of a table with its placeholders filled in.

    Raises:
        ReproduceError: a placeholder is not known, or its braces are not closed.
    """
    allowed = ", ".join("{" + name + "}" for name in values)
    try:
        words = [str(word).format(**values) for word in command]
    except (KeyError, IndexError) as error:
        raise ReproduceError(
            f"command {command}: {{{error.args[0]}}} is not known; allowed: {allowed}"
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ReproduceError(
            f"command {command}: {error}; allowed: {allowed}, and {{{{ and }}}} for "
            "braces"
        ) from error
    return [sys.executable if word == "python" else word for word in words]


def check_command(where: str, command: list[str], placeholders: Iterable[str]) -> None:
    """Raise ReproduceError where a command could not be filled in."""
    try:
        filled(command, dict.fromkeys(placeholders, ""))
    except ReproduceError as error:
        raise ReproduceError(f"{where}: {error}") from error


def check_after(where: str, after: dict[str, list[str]], taken: Iterable[str]) -> None:
    """Raise ReproduceError unless these can be steps of a run.

    Args:
        where: the place, for messages.
        after: name of the step -> its command.
        taken: names of other steps.
    """
    for name, command in after.items():
        # a step's log is named by it
        if name in taken or not re.fullmatch(r"\w[\w.-]*", name):
            raise ReproduceError(
                f"{where}: {name!r}; allowed: names of letters, digits, '_', '-' and "
                f"'.', but {', '.join(taken)}"
            )
        if not command:
            raise ReproduceError(f"{where}: {name}=[]; allowed: one word at least")
        check_command(f"{where}: {name}", command, AFTER)

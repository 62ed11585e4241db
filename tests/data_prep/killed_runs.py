"""A preparation in a forked process that is killed at one of its steps.

A step is a call that makes, moves or removes a file or folder.
"""

import os
from collections.abc import Callable

STEPS = ("mkdir", "rename", "replace", "unlink", "rmdir")
KILLED = 137


def run_killed(
    command: Callable[[], int], step: int, before: bool, names: tuple[str, ...] = STEPS
) -> int:
    """The exit code of ``command``, 137 if it was killed.

    ``command`` runs in a fork, which dies right before or after its ``step``-th call
    (from 0) of the functions ``names`` of ``os``.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _die_at(step, before, names)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os._exit(command())
    finally:  # an exception, too, must not reach pytest's frames
        os._exit(1)


def _die_at(step: int, before: bool, names: tuple[str, ...]) -> None:
    calls = iter(range(1_000_000))

    def watched(function):
        def call(*arguments, **options):
            due = next(calls) == step
            if due and before:
                os._exit(KILLED)
            result = function(*arguments, **options)
            if due:
                os._exit(KILLED)
            return result

        return call

    for name in names:
        setattr(os, name, watched(getattr(os, name)))

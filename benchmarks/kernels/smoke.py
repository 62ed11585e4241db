"""First contact with a device: does each kind of kernel run, and compute rightly?

    python -m benchmarks smoke --device cuda --tokens 8192

Prints the versions, then the errors of our kernels' outputs and gradients beside those
of plain torch, both against float64. Takes the options of ``benchmarks kernels``. Exit
code: 1 if a kernel did not run, or was wrong.
"""

from __future__ import annotations

import time

from ..harness import command_line, environment
from ..harness.memory import why_not_measured
from .accuracy import Judge
from .command import groups_of, parse

NAME = "smoke"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    begin = time.monotonic()
    options = parse(arguments, NAME)
    command_line.prepare(options)
    described = environment.describe(options.device) | environment.peers()
    print(f"{NAME}: {described}", flush=True)
    record = command_line.record(NAME, options, arguments, {"tokens": options.tokens})
    # Triton's where it can run
    name = "ours (triton)" if options.device.type == "cuda" else "ours (torch)"
    failed = False
    for group in groups_of(options):
        for contestant in group.contestants:
            if contestant.name != name:
                continue
            row = {"group": group.name, "variant": group.variant, "contestant": name}
            try:
                row |= Judge(group)(contestant).fields()
            except Exception as error:  # whatever does not compile is the answer
                row["skipped"] = why_not_measured(error)
            failed |= row.get("wrong", True)
            record.add([row])
            found = row.get("skipped") or (
                f"{'WRONG: ' if row['wrong'] else ''}{row['errors']}, "
                f"torch {row['yardstick']}"
            )
            seconds = time.monotonic() - begin
            print(f"{seconds:6.1f} s {group.name} {group.variant}: {found}", flush=True)
    record.finish()
    return int(failed)

"""Runs commands one after the other, each with a time limit, and notes what came out.

gpu_check.py has the commands.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_transnormer.data.whole_files import write_json

ROOT = Path(__file__).resolve().parents[1]
LOG_TAIL = 2000  # characters of a failed step's output for the summary
INTERRUPT_S = 15  # for a step to end by itself when its time is over
# in a command: the seconds that it may measure, so that it ends in time by itself ...
SECONDS = "SECONDS"
# ... without those that it takes to start and to end
START_S = 12


@dataclass
class Step:
    """A command; share: the part of all seconds that it may take."""

    name: str
    share: float
    command: list[str]
    read: Callable[[str], object] = lambda output: None
    environment: dict[str, str] = field(default_factory=dict)


def run_steps(
    steps: list[Step],
    out: Path,
    seconds: float,
    summary: dict,
    after: Callable[[dict], None] = lambda record: None,
) -> bool:
    """Run the steps one after the other; whether all of them passed.

    ``summary["steps"]`` gets a record of each one, and summary.json is written anew
    after each, so that a run that is cut off has reported what it knew.

    Args:
        steps: in this order.
        out: folder of summary.json and of each step's log.
        seconds: for all steps together.
        summary: what else summary.json holds.
        after: called with the record of a step, when the files are written.
    """
    end = time.monotonic() + seconds - INTERRUPT_S
    records = summary["steps"] = []
    for step in steps:
        limit = min(step.share * seconds, end - time.monotonic())
        record = {"step": step.name, "command": step.command, "limit_s": round(limit)}
        if limit < 1:
            record |= {"status": "skipped", "reason": "no time is left"}
        else:
            record |= _run(step, limit, out / f"{step.name}.log")
        records.append(record)
        write_json(out / "summary.json", summary)
        after(record)
    return all(record["status"] == "passed" for record in records)


def _run(step: Step, limit: float, log: Path) -> dict:
    begin = time.monotonic()
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    measured = f"{max(1.0, limit - START_S):.0f}"
    with log.open("wb") as file:
        # a session of its own, so that its children end with it
        process = subprocess.Popen(
            [measured if word == SECONDS else word for word in step.command],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path} | step.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_take_interrupts,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            interrupt(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    output = log.read_text(encoding="utf-8", errors="replace")
    record = {"seconds": round(time.monotonic() - begin, 1)}
    problem = None
    try:
        record["result"] = step.read(output)
    except Exception as error:  # whatever a broken step left behind
        problem = f"its result cannot be read: {error!r}"
    if code != 0:
        problem = (
            f"not ready after {limit:.0f} s" if code is None else f"exit code {code}"
        )
    if problem is None:
        return record | {"status": "passed"}
    status = "timeout" if code is None else "failed"
    return record | {"status": status, "reason": problem, "output": output[-LOG_TAIL:]}


def _take_interrupts() -> None:
    """In the child: a shell starts background jobs with SIGINT ignored, and they hand
    that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(process: subprocess.Popen) -> None:
    """As Ctrl-C does: pytest then still writes the results that it has. To all its
    processes: it waits for those that go on with a test."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(INTERRUPT_S)

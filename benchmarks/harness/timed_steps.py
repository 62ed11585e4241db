"""Runs commands one after the other, each with a time limit, and notes what came out.

gpu_check.py has the commands.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_transnormer.data.whole_files import write_json

ROOT = Path(__file__).resolve().parents[2]
LOG_TAIL = 2000  # characters of a failed step's output for the summary
INTERRUPT_S = 10  # for a step to end by itself when its time is over


@dataclass
class Step:
    """A command; share: the part of all seconds that it may take."""

    name: str
    share: float
    command: list[str]
    read: Callable[[str], object] = lambda output: None
    needs: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def run_steps(steps: list[Step], out: Path, seconds: float, summary: dict) -> bool:
    """Run the steps one after the other; whether all of them passed.

    ``summary["steps"]`` gets a record of each one, and summary.json is written anew
    after each, so that a run that is cut off has reported what it knew.

    Args:
        steps: in this order; one whose ``needs`` did not pass is skipped.
        out: folder of summary.json and log.txt.
        seconds: for all steps together.
        summary: what else summary.json holds.
    """
    end = time.monotonic() + seconds
    records = summary["steps"] = []
    write_summary(out, summary)
    for step in steps:
        limit = min(step.share * seconds, end - time.monotonic())
        record = {"step": step.name, "command": step.command, "limit_s": round(limit)}
        passed = {r["step"] for r in records if r["status"] == "passed"}
        if step.needs is not None and step.needs not in passed:
            record |= {"status": "skipped", "reason": f"{step.needs} did not pass"}
        elif limit < 1:
            record |= {"status": "skipped", "reason": "no time is left"}
        else:
            print(f"gpu_check: {step.name} (up to {limit:.0f} s)", flush=True)
            record |= _run(step, limit, out / "log.txt")
        print(f"gpu_check: {step.name}: {record['status']}", flush=True)
        records.append(record)
        write_summary(out, summary)
    return all(record["status"] == "passed" for record in records)


def write_summary(out: Path, summary: dict) -> None:
    write_json(out / "summary.json", summary)


def _run(step: Step, limit: float, log: Path) -> dict:
    begin = time.monotonic()
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    with tempfile.TemporaryFile() as printed:
        # a session of its own, so that its children end with it
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path} | step.environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_take_interrupts,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            _interrupt(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"===== {step.name}\n{output}\n")
    record = {"seconds": round(time.monotonic() - begin, 1)}
    try:
        record["result"] = step.read(output)
        problem = None
    except Exception as error:  # whatever a broken step left behind
        problem = f"its result cannot be read: {error!r}"
    if code is None:
        problem = f"not ready after {limit:.0f} s"
    elif code != 0:
        problem = f"exit code {code}"
    if problem is None:
        return record | {"status": "passed"}
    return record | {
        "status": "timeout" if code is None else "failed",
        "reason": problem,
        "output": output[-LOG_TAIL:],
    }


def _take_interrupts() -> None:
    """In the child: a shell starts background jobs with SIGINT ignored, and they hand
    that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt(process: subprocess.Popen) -> None:
    """As Ctrl-C does: pytest then still writes the results that it has."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(INTERRUPT_S)

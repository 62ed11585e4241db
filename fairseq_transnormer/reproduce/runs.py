"""A run: what is to be run, and the folder that has everything about it.

configuration.yaml   the full configuration that it trains with
run.json             where that comes from, its data, the commands
status.json          state and attempts: time, exit code, memory, commit, versions
train.log            output of the training, one attempt behind the other
checkpoints/         fairseq's
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .configurations import Configuration, differences
from .errors import ReproduceError

CONFIGURATION = "configuration.yaml"
DESCRIPTION = "run.json"
STATUS = "status.json"
LOCK = ".lock"
STATES = ("new", "submitted", "running", "interrupted", "failed", "finished")
SHOWN_DIFFERENCES = 4


@dataclass(frozen=True)
class Step:
    """A command of a run; it is run in the run's folder."""

    name: str
    command: list[str]

    @property
    def log(self) -> str:
        """Name of the file that its output goes to."""
        return f"{self.name}.log"


@dataclass
class Plan:
    """A run that is to be.

    Attributes:
        name: of its folder; runs of the same name are the same run.
        configuration: what it trains with.
        data: folder of the data.
        data_fingerprint: changes with the data.
        seed: of the run.
        updates: that the training has, for progress.
        steps: commands, in this order.
        origin: where the configuration comes from, for readers.
        machine_keys: keys of the configuration, or sections with a dot behind them,
            in which a run may be gone on with on another machine.
        layout_keys: keys that must stay as they are until the run is finished.
        needs: names of the runs that must be finished before this one.
    """

    name: str
    configuration: Configuration
    data: str
    data_fingerprint: str
    seed: int
    updates: int
    steps: list[Step]
    origin: dict[str, Any] = field(default_factory=dict)
    machine_keys: tuple[str, ...] = ()
    layout_keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def description(self) -> dict[str, Any]:
        """run.json; raises ReproduceError if it is damaged."""
        return self._read(DESCRIPTION, {"steps", "data_fingerprint", "updates", "seed"})

    def configuration(self) -> Configuration:
        """configuration.yaml as it is."""
        path = self.path / CONFIGURATION
        try:
            return yaml.load(path.read_text(encoding="utf-8"), _LOADER)
        except (OSError, yaml.YAMLError) as error:
            raise ReproduceError(f"{path}: cannot be read: {error}") from error

    def steps(self) -> list[Step]:
        """The run's commands."""
        return [Step(**each) for each in self.description()["steps"]]

    def needs(self) -> list["RunFolder"]:
        """The runs that must be finished before this one."""
        found = self.description().get("needs", [])
        return [RunFolder(Path(os.path.normpath(self.path / each))) for each in found]

    def status(self) -> dict[str, Any]:
        """status.json, or that of a run that has never started.

        A run that says it is running while nobody holds its lock was killed.
        """
        if not (self.path / STATUS).exists():
            return {"state": "new", "steps_done": [], "attempts": []}
        status = self._read(STATUS, {"state", "steps_done", "attempts"})
        if status["state"] not in STATES:
            raise self._damaged(STATUS, f"state={status['state']!r}")
        if status["state"] == "running" and not self.is_locked():
            status["state"] = "interrupted"
        return status

    def write_status(self, status: dict[str, Any]) -> None:
        self._write(STATUS, json.dumps(status, indent=1) + "\n")

    def is_finished(self) -> bool:
        """Whether every step is done."""
        done = set(self.status()["steps_done"])
        return bool(done) and all(step.name in done for step in self.steps())

    def _has_its_result(self) -> bool:
        """Whether the training, or the measurement, is done; the rest reads it."""
        return bool({"train", "measure"} & set(self.status()["steps_done"]))

    def exists(self) -> bool:
        """Whether a run was prepared here."""
        return (self.path / DESCRIPTION).exists()

    def check(self, plan: Plan) -> None:
        """Raise ReproduceError unless what is in the folder belongs to ``plan``.

        A run that has neither ended nor a checkpoint has nothing to lose.
        """
        finished = self._has_its_result()
        if not self.exists() or not (finished or any(self.checkpoints.glob("*.pt"))):
            return
        ignored = plan.machine_keys + (plan.layout_keys if finished else ())
        found = [
            phrase
            for phrase in differences(self.configuration(), plan.configuration)
            if not _is_among(phrase.split(":", 1)[0], ignored)
        ]
        fingerprint = self.description()["data_fingerprint"]
        if fingerprint != plan.data_fingerprint:
            found.append(f"data: {fingerprint} there, {plan.data_fingerprint} now")
        if found:
            more = len(found) - SHOWN_DIFFERENCES
            shown = "; ".join(found[:SHOWN_DIFFERENCES])
            raise ReproduceError(
                f"{self.path} is a run with another configuration: {shown}"
                f"{f'; and {more} more' if more > 0 else ''}. Remove or rename the "
                "folder, or give another --runs-dir"
            )

    def prepare(self, plan: Plan) -> None:
        """Write what the run needs; ``check`` must have passed.

        A training that is done keeps its configuration; only commands are added.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        steps = [asdict(step) for step in self._all_steps(plan)]
        if self._has_its_result():
            description = {**self.description(), "steps": steps}
        else:
            content = yaml.safe_dump(plan.configuration, sort_keys=False)
            self._write(CONFIGURATION, "# @package _global_\n" + content)
            description = {
                "name": plan.name,
                "origin": plan.origin,
                "data": plan.data,
                "data_fingerprint": plan.data_fingerprint,
                "seed": plan.seed,
                "updates": plan.updates,
                "needs": [os.path.relpath(each, plan.name) for each in plan.needs],
                "steps": steps,
            }
        self._write(DESCRIPTION, json.dumps(description, indent=1) + "\n")

    def is_locked(self) -> bool:
        """Whether a runner is at work in the folder."""
        if not (self.path / LOCK).exists():
            return False
        try:
            with self.lock():
                return False
        except ReproduceError:
            return True

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; raises ReproduceError if another runner does."""
        with (self.path / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ReproduceError(
                    f"{self.path}: another runner is at work in it"
                ) from None
            yield

    def _all_steps(self, plan: Plan) -> list[Step]:
        """The plan's steps and, behind them, those that other tables asked for."""
        names = {step.name for step in plan.steps}
        others = self.steps() if self.exists() else []
        return plan.steps + [step for step in others if step.name not in names]

    def _read(self, name: str, required: set[str]) -> dict[str, Any]:
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ReproduceError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise self._damaged(name, str(error)) from error
        if not isinstance(content, dict) or required - set(content):
            raise self._damaged(name, f"expected a mapping with {sorted(required)}")
        return content

    def _damaged(self, name: str, why: str) -> ReproduceError:
        return ReproduceError(
            f"{self.path / name} is damaged ({why}); remove that file, and the run "
            "goes on from its last checkpoint"
        )

    def _write(self, name: str, text: str) -> None:
        part = self.path / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.path / name)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _is_among(key: str, patterns: tuple[str, ...]) -> bool:
    return any(
        key.startswith(each) if each.endswith(".") else key == each for each in patterns
    )


def merged(plans: list[Plan]) -> list[Plan]:
    """One plan for each name, with the steps of all."""
    by_name: dict[str, Plan] = {}
    for plan in plans:
        first = by_name.setdefault(plan.name, plan)
        known = {step.name for step in first.steps}
        first.steps += [step for step in plan.steps if step.name not in known]
    return list(by_name.values())

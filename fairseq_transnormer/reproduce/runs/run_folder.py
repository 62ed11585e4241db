"""The folder of a run, which has everything about it.

configuration.yaml   the full configuration that it trains with
run.json             where that comes from, data and weights it starts from, commands
status.json          state and attempts: time, exit code, memory, commit, versions
train.log            output of the training, one attempt after the other
checkpoints/         fairseq's
earlier-N/           what an attempt with other settings left before any checkpoint
"""

import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from ...checkpoints.identity import weights_fingerprint
from ...checkpoints.safe_loading import CheckpointError
from ...data.fingerprints import mark_of
from ...data.typed_mappings import (
    MAPPING,
    NUMBER,
    TEXT,
    WHOLE,
    Kind,
    check_values,
    list_of,
    mapping_of,
    optional,
    read_json,
)
from ...data.whole_files import first_free, write_json, write_text
from ...training.config import Configuration
from ..errors import ReproduceError
from ..yaml_files import read_yaml_mapping
from .plans import (
    TRAININGS,
    Plan,
    Step,
    differences,
    sequences_per_update,
    starting_checkpoint,
)

CONFIGURATION = "configuration.yaml"
DESCRIPTION = "run.json"
STATUS = "status.json"
LOCK = ".lock"
# who asks for a runner holds the lock for an instant
ASKING_SECONDS = 0.3
STATES = ("new", "submitted", "running", "interrupted", "failed", "finished")
SHOWN_DIFFERENCES = 4
EARLIER = "earlier-"


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        """Of the training, or the measurement."""
        names = [step.name for step in self.steps() if step.name in TRAININGS]
        return self.path / Step(names[0] if names else TRAININGS[0], []).log

    def description(self) -> dict[str, Any]:
        """run.json; raises ReproduceError if it is damaged."""
        found = self._read(DESCRIPTION, _DESCRIPTION_KINDS, _DESCRIPTION_REQUIRED)
        for step in found["steps"]:
            self._check_values(DESCRIPTION, "steps", step, _STEP_KINDS, _STEP_KINDS)
        if found.get("start") is not None:
            start = found["start"]
            self._check_values(DESCRIPTION, "start", start, _START_KINDS, _START_KINDS)
        return found

    def configuration(self) -> Configuration:
        """configuration.yaml as it is."""
        return read_yaml_mapping(self.path / CONFIGURATION)

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
        status = self._read(STATUS, _STATUS_KINDS, ("state", "steps_done", "attempts"))
        for attempt in status["attempts"]:
            self._check_values(
                STATUS, "attempts", attempt, _ATTEMPT_KINDS, _ATTEMPT_REQUIRED
            )
        if status["state"] == "running" and not self.is_locked():
            status["state"] = "interrupted"
        return status

    def write_status(self, status: dict[str, Any]) -> None:
        write_json(self.path / STATUS, status)

    def is_finished(self) -> bool:
        """Whether every step is done."""
        done = set(self.status()["steps_done"])
        return bool(done) and all(step.name in done for step in self.steps())

    def _has_its_result(self) -> bool:
        """Whether the training, or the measurement, is done; the rest reads it."""
        return bool(set(TRAININGS) & set(self.status()["steps_done"]))

    def exists(self) -> bool:
        """Whether a run was prepared here."""
        return (self.path / DESCRIPTION).exists()

    def has_anything_to_lose(self) -> bool:
        """Whether it has ended or has a checkpoint."""
        return self.exists() and (
            self._has_its_result() or any(self.checkpoints.glob("*.pt"))
        )

    def check(self, plan: Plan, holder: str = "") -> None:
        """Raise ReproduceError unless what is in the folder belongs to ``plan``.

        A run that has neither ended nor a checkpoint has nothing to lose, unless
        somebody else has it.

        Args:
            plan: that is to be run.
            holder: who has the run, as a phrase.
        """
        started = self.has_anything_to_lose()
        if not (started or holder):
            return
        finished = self._has_its_result()
        ignored = plan.machine_keys + (plan.layout_keys if finished else ())
        description, configuration = self.description(), self.configuration()
        found = []
        if description.get("name", plan.name) != plan.name:
            found.append(f"name: {description['name']} there, {plan.name} now")
        found += [
            phrase
            for phrase in differences(configuration, plan.configuration, plan.chosen)
            if not _is_among(phrase.split(":", 1)[0], ignored)
        ]
        # their factors may change: on other devices an update has others
        there = sequences_per_update(configuration)
        now = sequences_per_update(plan.configuration)
        if there != now:
            found.append(f"sequences of an update: {there} there, {now} now")
        fingerprint = description["data_fingerprint"]
        if fingerprint != plan.data_fingerprint:
            found.append(f"data: {fingerprint} there, {plan.data_fingerprint} now")
        if started:
            found += self._other_start(plan)
        if found:
            more = len(found) - SHOWN_DIFFERENCES
            shown = "; ".join(found[:SHOWN_DIFFERENCES])
            raise ReproduceError(
                f"{self.path} is another run: {shown}"
                f"{f'; and {more} more' if more > 0 else ''}"
                f"{f'; {holder}: end that first' if holder else ''}. Remove or rename "
                "the folder, or give another --runs-dir"
            )

    def _other_start(self, plan: Plan) -> list[str]:
        """A phrase if the run does not start from the plan's weights."""
        start = self.start()
        there = "not recorded" if start is None else start.weights or "not recorded"
        if plan.start is None:
            return [] if start is None else [f"weights: {there} there, fresh ones now"]
        for name in plan.needs:
            needed = RunFolder(self._beside(plan, name))
            if not needed.exists() or not needed._has_its_result():
                return [f"weights: {there} there, and {needed.path} has none yet"]
        now = plan.weights or self._weights_at(plan.start)
        if now == there:
            return []
        if now is None and start is not None and start.weights is not None:
            # a checkpoint that was removed since leaves nothing to compare with
            return []
        return [f"weights: {there} there, {now or 'none'} now"]

    def start(self) -> "Start | None":
        """What run.json says of the weights that the run starts from."""
        found = self.description().get("start")
        return None if found is None else Start(**found)

    def other_weights(self) -> str | None:
        """Why the run's result is not of the weights that are at its start now."""
        start = self.start()
        given = starting_checkpoint(self.configuration()) if start is None else start
        if given is None:
            return None
        if start is None or start.weights is None:
            return f"{DESCRIPTION} does not have the fingerprint of its first weights"
        path = self.path / start.checkpoint
        if not path.is_file() or start.mark == list(mark_of(path)):
            return None
        now = self._weights_at(start.checkpoint)
        return None if now == start.weights else self._other(start, now)

    def _other(self, start: "Start", now: str) -> str:
        path = os.path.normpath(self.path / start.checkpoint)
        return f"it starts from weights {start.weights}, and {path} has {now} now"

    def record_start(self) -> None:
        """Write down the weights that the training is about to start from.

        Raises:
            ReproduceError: they are not there, or others than those of the plan.
        """
        start = self.start()
        if start is None or self._has_its_result():
            return
        path = self.path / start.checkpoint
        now = self._weights_at(start.checkpoint)
        if now is None:
            raise ReproduceError(f"{self.path}: it starts from {path}: no such file")
        if start.weights not in (None, now):
            raise ReproduceError(
                f"{self.path}: {self._other(start, now)}. Remove or rename the folder, "
                "or give another --runs-dir"
            )
        found = Start(start.checkpoint, now, list(mark_of(path)))
        self._write_description({**self.description(), "start": asdict(found)})

    def _weights_at(self, checkpoint: str) -> str | None:
        """Fingerprint of the weights in a checkpoint, None if it is not there."""
        path = self.path / checkpoint
        if not path.is_file():
            return None
        try:
            return weights_fingerprint(path)
        except CheckpointError as error:
            raise ReproduceError(str(error)) from error

    def _beside(self, plan: Plan, name: str) -> Path:
        """The folder of another run of the plan's."""
        return Path(os.path.normpath(self.path / os.path.relpath(name, plan.name)))

    def prepare(self, plan: Plan) -> None:
        """Write what the run needs; ``check`` must have passed.

        A training that is done keeps its configuration; only commands are added.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        steps = [asdict(step) for step in self._all_steps(plan)]
        start = None if plan.start is None else Start(plan.start, plan.weights, None)
        if self.has_anything_to_lose() and start is not None:
            # the file may have been moved
            start = Start(plan.start, (self.start() or start).weights, None)
        start = None if start is None else asdict(start)
        if self._has_its_result():
            self._redo_changed_steps(plan)
            description = {**self.description(), "steps": steps, "start": start}
        else:
            self._put_aside(plan)
            content = yaml.safe_dump(plan.configuration, sort_keys=False)
            write_text(self.path / CONFIGURATION, content)
            description = {
                "name": plan.name,
                "origin": plan.origin,
                "data": plan.data,
                "data_fingerprint": plan.data_fingerprint,
                "start": start,
                "seed": plan.seed,
                "updates": plan.updates,
                "needs": [os.path.relpath(each, plan.name) for each in plan.needs],
                "steps": steps,
            }
        self._write_description(description)

    def _redo_changed_steps(self, plan: Plan) -> None:
        """A command after the training that is another one now is run again."""
        data = self.description().get("data", plan.data)
        before = {step.name: _portable(step, data) for step in self.steps()}
        now = {step.name: _portable(step, plan.data) for step in plan.steps}
        changed = {
            name
            for name, command in now.items()
            if name not in TRAININGS and command != before.get(name, command)
        }
        status = self.status()
        done = [name for name in status["steps_done"] if name not in changed]
        if done != status["steps_done"]:
            self.write_status({**status, "steps_done": done})

    def _put_aside(self, plan: Plan) -> None:
        """Move away what attempts with other settings left: logs are added to.

        Records of their updates would stand among those of the new training.
        """
        if not self.exists() or self.has_anything_to_lose():
            return
        try:
            same_data = self.description()["data_fingerprint"] == plan.data_fingerprint
            changed = differences(self.configuration(), plan.configuration, plan.chosen)
            if same_data and not changed:
                return
        except ReproduceError:  # damaged: nobody knows what they are of
            pass
        folder = first_free(self.path / EARLIER)
        folder.mkdir()
        for path in list(self.path.iterdir()):
            if path.name != LOCK and not path.name.startswith((EARLIER, "slurm-")):
                path.rename(folder / path.name)

    def is_locked(self) -> bool:
        """Whether a runner is at work in the folder, which is not written to."""
        try:
            with (self.path / LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; raises ReproduceError if another runner does."""
        with (self.path / LOCK).open("w") as file:
            asked_until = time.monotonic() + ASKING_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > asked_until:
                        raise ReproduceError(
                            f"{self.path}: another runner is at work in it"
                        ) from None
                time.sleep(0.01)
            yield

    def _all_steps(self, plan: Plan) -> list[Step]:
        """The plan's steps and, after them, those that other tables asked for."""
        names = {step.name for step in plan.steps}
        others = self.steps() if self.exists() else []
        return plan.steps + [step for step in others if step.name not in names]

    def _read(
        self, name: str, kinds: dict[str, Kind], required: Iterable[str]
    ) -> dict[str, Any]:
        path = self.path / name
        try:
            return read_json(path, kinds, required)
        except OSError as error:
            raise ReproduceError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise self._damaged(name, error) from error

    def _check_values(
        self,
        name: str,
        key: str,
        content: Any,
        kinds: dict[str, Kind],
        required: Iterable[str],
    ) -> None:
        try:
            check_values(f"{self.path / name}: {key}", content, kinds, required)
        except ValueError as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: ValueError) -> ReproduceError:
        # run.json says what a finished run is of, which nothing else knows
        remedy = "that file, and the run resumes from its last checkpoint"
        if name == DESCRIPTION:
            remedy = "the folder, or take the file from a backup"
        return ReproduceError(f"{error}. The file is damaged; remove {remedy}")

    def _write_description(self, description: dict[str, Any]) -> None:
        write_json(self.path / DESCRIPTION, description)


@dataclass(frozen=True)
class Start:
    """The weights that a run starts from.

    Attributes:
        checkpoint: the file, absolute or as seen from the run's folder.
        weights: their fingerprint; None until the run has started.
        mark: of the file then, see ``fingerprints.mark_of``: one that still has it
            need not be read to know its weights.
    """

    checkpoint: str
    weights: str | None
    mark: list[int] | None


_STEP_KINDS = {"name": TEXT, "command": list_of(TEXT)}
_START_KINDS = {
    "checkpoint": TEXT,
    "weights": optional(TEXT),
    "mark": optional(list_of(WHOLE)),
}
_DESCRIPTION_REQUIRED = ("steps", "data", "data_fingerprint", "updates", "seed")
_DESCRIPTION_KINDS = {
    "name": TEXT,
    "origin": MAPPING,
    "data": TEXT,
    "data_fingerprint": TEXT,
    "updates": WHOLE,
    "seed": WHOLE,
    "needs": list_of(TEXT),
    "steps": list_of(MAPPING),
    "start": optional(MAPPING),
}
_STATUS_KINDS = {
    "state": Kind(", ".join(STATES), lambda value: value in STATES),
    "steps_done": list_of(TEXT),
    "attempts": list_of(MAPPING),
    "slurm_job": TEXT,
}
_ATTEMPT_REQUIRED = ("step", "started")
_ATTEMPT_KINDS = {
    "step": TEXT,
    "started": NUMBER,
    "ended": NUMBER,
    "peak_rss_bytes": optional(NUMBER),
    "device": TEXT,
    "machine": TEXT,
    "commit": TEXT,
    "versions": mapping_of(TEXT),
}


def _portable(step: Step, data: str) -> list[str]:
    """A command without this machine's interpreter and folder of data."""
    first, *others = step.command
    first = "python" if Path(first).name.startswith("python") else first
    folder = re.compile(rf"(^|=){re.escape(data)}(?=/|$)")
    return [first, *(folder.sub(r"\1{data}", word) for word in others)]


def _is_among(key: str, patterns: tuple[str, ...]) -> bool:
    return any(
        key.startswith(each) if each.endswith(".") else key == each for each in patterns
    )

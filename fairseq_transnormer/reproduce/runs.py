"""The folder of a run: what it trains by, what it left, and its state, which follows.

config.yaml    the full configuration that it trains with
run.json       its name, data, seed, command
train.log      output of the training, one attempt after the other; a JSON line at the
               beginning and at the end of each
checkpoints/   fairseq's
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from ..data.training_records import LOG, put_earlier_aside
from ..data.whole_files import json_text, write_json, write_text
from ..training.exit_code import EXIT_RESUMABLE
from ..training.folder_lock import LOCK as TRAINING_LOCK
from .data import Data, fingerprint

CONFIGURATION, FACTS, LOCK = "config.yaml", "run.json", ".lock"
BEGAN, ENDED, SUBMITTED = "attempt", "attempt_end", "submitted"
_KINDS = (f'{{"kind": "{BEGAN}', f'{{"kind": "{SUBMITTED}')  # the end begins alike
# whatever is wrong with a run's files: the other runs are not concerned
UNREADABLE = (AttributeError, KeyError, OSError, TypeError, ValueError, yaml.YAMLError)
# who asks whether a run is locked holds the lock for an instant
ASKING_SECONDS, LOCKING_SECONDS = 0.1, 1
SHOWN = 4  # of many differences
TAIL_CHARACTERS = 20_000
FINISHED, FAILED, RUNNING = "finished", "failed", "running"
INTERRUPTED, NEW = "interrupted", "new"
UNFINISHED = (NEW, SUBMITTED, RUNNING, INTERRUPTED)  # it may still end otherwise
WITHOUT_RESULT = (*UNFINISHED, FAILED)


@dataclass(frozen=True)
class Run:
    """A run that is to be."""

    name: str  # its folder below that of all runs; of one name, it is the same run
    configuration: dict[str, Any]  # that it trains with
    data: Data
    seed: int
    updates: int  # that it has, for progress; 0 of a measurement
    command: tuple[str, ...]  # run in its folder
    needs: tuple[str, ...] = ()  # names of runs that must be finished before
    # the checkpoint that its weights come from, absolute or as seen from its folder
    start: str = ""


class RunFolder:
    """The folder of one run; what it has is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """run.json."""
        return json.loads((self.path / FACTS).read_text(encoding="utf-8"))

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """config.yaml, as it is."""
        text = (self.path / CONFIGURATION).read_text(encoding="utf-8")
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    @cached_property
    def log(self) -> str:
        """train.log; "" where there is none."""
        try:
            return (self.path / LOG).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    @cached_property
    def attempts(self) -> list[dict[str, Any]]:
        """Each with ``started``, ``device``, ``commit``, ... and what its end added."""
        return [each for each in self._records if each["kind"] == BEGAN]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in filter(lambda line: line.startswith(_KINDS), self.log.splitlines()):
            try:
                record = json.loads(line)
            except ValueError:  # half a line, of a process that was killed
                continue
            if record["kind"] == ENDED:
                # a job may have started before it was noted that it was submitted
                began = [each for each in found if each["kind"] == BEGAN][-1:]
                if not began:  # whose own line is lost
                    continue
                found.remove(began[0])
                record = began[0] | record | {"kind": BEGAN}
            found.append(record)
        return found

    @property
    def job(self) -> str | None:
        """Slurm's job that was submitted last."""
        records = [each for each in self._records if each["kind"] == SUBMITTED]
        return records[-1]["job"] if records else None

    @property
    def state(self) -> str:
        """``FINISHED``, or one of ``WITHOUT_RESULT``."""
        if self.is_locked():
            return RUNNING
        if self.has_ended_well:
            return FINISHED
        last = self._records[-1] if self._records else {"kind": NEW}
        if last["kind"] != BEGAN:
            return last["kind"]
        code = last.get("exit_code", EXIT_RESUMABLE)
        # no signal, as that of a lack of memory, says that a setting fails
        return INTERRUPTED if code < 0 or code == EXIT_RESUMABLE else FAILED

    @property
    def has_ended_well(self) -> bool:
        """Whether the last attempt did, even if it was submitted once more since."""
        return bool(self.attempts) and self.attempts[-1].get("exit_code") == 0

    @property
    def is_finished(self) -> bool:
        return self.state == FINISHED

    @property
    def has_progress(self) -> bool:
        """Whether it has ended or has a checkpoint."""
        return self._has_checkpoint() or self.is_finished

    def _has_checkpoint(self) -> bool:
        return any((self.path / "checkpoints").glob("*.pt"))

    def unfinished_needs(self, runs: Path) -> list[RunFolder]:
        """The runs, of the folder of all, that must be finished before and are not."""
        needs = [RunFolder(runs / each) for each in self.facts["needs"]]
        return [each for each in needs if not each.is_finished]

    @property
    def weights(self) -> str | None:
        """Fingerprint of those that it started from; None of fresh ones."""
        found = (each["weights"] for each in self.attempts if each.get("weights"))
        return next(found, None)

    def weights_at_start(self) -> str | None:
        """Fingerprint of those that are there to start from now.

        ValueError where they are not there, or others than those that it started from.
        """
        if not self.facts["start"]:
            return None
        # it imports torch: a second of each job
        from ..checkpoints.identity import weights_fingerprint

        path = self.path / self.facts["start"]
        now = weights_fingerprint(path)
        if self.weights not in (None, now):
            raise ValueError(
                f"{self.path} started from weights {self.weights}, and {path} has "
                f"{now}; remove the folder, or give another --runs-dir"
            )
        return now

    def other_weights(self) -> str:
        """Why the result is not of the weights that are at its start now; or ""."""
        try:  # the path is the folder's where it starts from none
            if (self.path / self.facts["start"]).is_file():
                self.weights_at_start()
        except ValueError as error:
            return f"other weights: {error}"
        return ""

    def other_data(self) -> str:
        """Why the data that are there now are not those of the run; or ""."""
        folder, was = Path(self.facts["data"]), self.facts["data_fingerprint"]
        try:
            now = fingerprint(Data(folder, self.facts["task"], part=self.facts["part"]))
        except (OSError, ValueError) as error:
            return f"data of {self.path}: {error}"
        return "" if now == was else f"{self.path}: data {was}, and {folder} has {now}"

    def prepare(self, run: Run) -> None:
        """Write what the run needs, unless ``check`` refuses; a run that resumes may
        have other devices."""
        same = self.check(run)
        if same and self.is_finished:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        if not same:  # records of other settings would stand among this run's
            put_earlier_aside(self.path)
        text = yaml.safe_dump(run.configuration, sort_keys=False)
        write_text(self.path / CONFIGURATION, text)
        facts = {key: getattr(run, key) for key in ("name", "seed", "updates", "start")}
        facts |= {"data": str(run.data.folder), "task": run.data.task}
        facts |= {"part": run.data.part, "conditions": run.data.conditions}
        facts["data_fingerprint"] = fingerprint(run.data)
        facts |= {"needs": [*run.needs], "command": [*run.command]}
        write_json(self.path / FACTS, facts)
        self.forget()

    @property
    def updates_done(self) -> int:
        """By the end of the log alone: of many runs it is asked now and then."""
        end = self.log[-TAIL_CHARACTERS:]
        found = re.findall(r'"(?:\w+_)?num_updates": "?([\d.e+]+)[",}]', end)
        return int(float(found[-1])) if found else 0  # a million is 1e+06

    @property
    def last_validation(self) -> str:
        """As "valid_ppl 23.4"; "" before the first."""
        found = re.findall(r'"(valid_(?:ppl|accuracy))": "?([\d.]+)', self.log)
        return " ".join(found[-1]) if found else ""

    def forget(self) -> None:
        """Read the files anew."""
        self.__dict__ = {"path": self.path}

    def check(self, run: Run) -> bool:
        """Whether the folder is that of this run; False if it is to be made.

        ValueError where another run's results are there, or a process is at work.
        """
        if not (self.path / FACTS).exists():
            if self._has_checkpoint():
                raise ValueError(f"{self.path} has checkpoints but no {FACTS}")
            return False
        try:
            found = self._differences(run)
        except UNREADABLE as error:
            if not self.has_progress:
                return False
            raise ValueError(f"{self.path} is damaged: {error}") from error
        if found and (self.state in (RUNNING, SUBMITTED) or self.has_progress):
            more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise ValueError(
                f"{self.path} is another run: {'; '.join(found[:SHOWN])}{more}. Remove "
                "the folder, or give another --runs-dir"
            )
        return not found

    def _differences(self, run: Run) -> list[str]:
        from ..checkpoints.identity import weights_fingerprint
        from .settings import differences, settings_of

        there = {"name": self.facts["name"], "data": self.facts["data_fingerprint"]}
        now = {"name": run.name, "data": fingerprint(run.data)}
        there |= {"starts from weights": bool(self.facts["start"])}
        now |= {"starts from weights": bool(run.start)}
        if self.weights and (self.path / run.start).is_file():
            there["weights"] = self.weights
            now["weights"] = weights_fingerprint(self.path / run.start)
        if self.has_progress and not self.is_finished:  # it cuts the data up
            for each, of in ((there, self.configuration), (now, run.configuration)):
                each["dataset.batch_size"] = of.get("dataset", {}).get("batch_size")
        settings = (settings_of(e) for e in (self.configuration, run.configuration))
        return differences(*settings) + differences(there, now)

    def append(self, kind: str, **values: Any) -> None:
        """Append a JSON line to train.log, after whatever is there."""
        with (self.path / LOG).open("a", encoding="utf-8") as log:
            # the line before may be half of one
            log.write(f"\n{json_text({'kind': kind, **values})}\n")
        self.forget()

    def is_locked(self) -> bool:
        """Whether a process is at work in the folder.

        A training may outlive its killed runner.
        """
        locks = self.path / LOCK, self.path / "checkpoints" / TRAINING_LOCK
        for lock in filter(Path.exists, locks):
            try:
                with FileLock(lock, timeout=ASKING_SECONDS, poll_interval=0.01):
                    pass
            except Timeout:
                return True
            except OSError:  # of somebody else, in a folder that is only read
                continue
        return False

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; raises ValueError if another process does."""
        try:
            with FileLock(self.path / LOCK, timeout=LOCKING_SECONDS):
                yield
        except Timeout as error:
            raise ValueError(f"{self.path}: another process trains it") from error

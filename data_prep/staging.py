"""A folder that appears complete or not at all, made in stages that run once.

The work happens in ``DEST.partial``. ``.stages.json`` in it records the settings and
the finished stages, so that a run that was killed goes on behind the last of them.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.errors import InputError

STATE = ".stages.json"
LOCK = ".lock"
SHOWN_DIFFERENCES = 3

Record = dict[str, Any]


def is_complete(dest: Path, settings: Record, report: str, overwrite: bool) -> bool:
    """Whether ``dest`` is already there with these settings.

    Raises InputError where it is something else that must not be replaced.
    """
    if not dest.exists() or (dest.is_dir() and not any(dest.iterdir())):
        return False
    recorded = _read_json(dest / report).get("settings")
    if recorded is None:
        raise InputError(
            f"--dest {dest}: exists and holds no {report} of an earlier run, so it is "
            "left alone; give another folder"
        )
    if overwrite:
        return False
    differences = _differences(recorded, settings)
    if differences:
        raise InputError(
            f"--dest {dest}: already made with other settings "
            f"({'; '.join(differences)}); give another folder or --overwrite"
        )
    return True


class Staging:
    """``DEST.partial`` as a context: ``stage`` fills it, ``publish`` renames it."""

    def __init__(self, dest: Path, settings: Record) -> None:
        self.dest = Path(os.path.abspath(dest))
        self.folder = self.dest.with_name(self.dest.name + ".partial")
        self._settings = json.loads(json.dumps(settings))
        self._finished: dict[str, Record] = {}

    def __enter__(self) -> "Staging":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / LOCK, "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InputError(
                f"--dest {self.dest}: another run is preparing it"
            ) from None
        state = _read_json(self.folder / STATE)
        if state.get("settings") == self._settings:
            self._finished = state["stages"]
        else:
            self._clear()
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        # With nothing finished there is nothing to go on from: leave no litter.
        if kind is not None and not self._finished and self.folder.exists():
            shutil.rmtree(self.folder)
        self._lock.close()

    def stage(self, name: str, outputs: list[str], run: Callable[[], Record]) -> Record:
        """The result of ``run``, which is called only if no earlier run finished it."""
        done = self._finished.get(name)
        if done and done["bytes"] == self._sizes(outputs):
            print(f"{name}: finished by an earlier run")
            return done["result"]
        result = run()
        self._finished[name] = {"result": result, "bytes": self._sizes(outputs)}
        state = {"settings": self._settings, "stages": self._finished}
        write_json(self.folder / STATE, state)
        return result

    def files(self) -> list[Path]:
        """What has been made so far, without the bookkeeping."""
        found = (
            path
            for path in self.folder.rglob("*")
            if path.is_file() and path.name not in (STATE, LOCK)
        )
        return sorted(found)

    def publish(self) -> None:
        """Puts the folder in its place, in one rename."""
        replaced = self.dest.with_name(self.dest.name + ".replaced")
        if self.dest.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            os.rename(self.dest, replaced)
        os.rename(self.folder, self.dest)
        shutil.rmtree(replaced, ignore_errors=True)
        # Only now: until the rename they are what a killed run goes on from.
        (self.dest / STATE).unlink(missing_ok=True)
        (self.dest / LOCK).unlink()

    def _sizes(self, names: list[str]) -> dict[str, int | None]:
        paths = {name: self.folder / name for name in names}
        return {
            name: path.stat().st_size if path.exists() else None
            for name, path in paths.items()
        }

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()


def write_json(path: Path, content: Record) -> None:
    """Writes ``content`` readably; a kill leaves the old file or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def _read_json(path: Path) -> Record:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # missing or not ours
        return {}
    return content if isinstance(content, dict) else {}


def _differences(recorded: Record, settings: Record) -> list[str]:
    there, now = _flat("", recorded), _flat("", json.loads(json.dumps(settings)))
    names = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    shown = [
        f"{name}: {there.get(name)!r} there, {now.get(name)!r} now"
        for name in names[:SHOWN_DIFFERENCES]
    ]
    more = len(names) - len(shown)
    return shown + ([f"{more} more"] if more else [])


def _flat(name: str, value: Any) -> Record:
    if isinstance(value, list):
        value = {str(position): item for position, item in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    flat: Record = {}
    for key, item in value.items():
        flat |= _flat(f"{name}.{key}" if name else key, item)
    return flat

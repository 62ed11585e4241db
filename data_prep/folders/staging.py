"""A folder that appears complete or not at all, made in stages that run once.

The work happens in ``DEST.partial``. ``.stages.json`` in it records who made it, the
settings, the finished stages and the names of the files, so that the same command
resumes after the last finished stage, and so that nothing else is ever removed.

``publish`` gives the folder its name. An earlier DEST (``--overwrite``) is renamed to
``DEST.replaced`` first. A run that is killed between the two renames leaves DEST under
that name; the next command finds by the inode in ``.stages.json`` that it was moved
there, and moves it back. One that is killed after them leaves ``.stages.json`` in DEST,
and the next command removes the rest.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from data_prep.folders.destination import (
    Record,
    differences,
    folder_number,
    foreign_names,
    listed_files,
    read_json,
    remove_if_empty,
    remove_made,
    resolved,
    shown_names,
)
from data_prep.folders.errors import InputError
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.whole_files import part_of, write_json

STATE = ".stages.json"
LOCK = ".stages.lock"
MAKER = "data_prep"
OWN_NAMES = {STATE, part_of(STATE).name, LOCK}
# what rename says of a folder that cannot take another's place
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


@dataclass
class State:
    """``.stages.json``: an unfinished folder is this tool's where it can be read.

    ``files`` are all names that may have been made so far. ``ready`` says that the
    folder only waits for its name, ``replaces`` is the inode of the DEST it replaces.
    """

    settings: Record
    stages: dict[str, Record] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    ready: bool = False
    replaces: int | None = None
    made_by: str = MAKER

    @classmethod
    def read(cls, folder: Path) -> "State | None":
        """The folder's state; None where it is missing or another's."""
        if folder.is_symlink() or (folder / STATE).is_symlink():
            return None
        content = read_json(folder / STATE)
        types = {"settings": dict, "stages": dict, "files": list, "ready": bool}
        if content.get("made_by") != MAKER or any(
            not isinstance(content.get(name), kind) for name, kind in types.items()
        ):
            return None
        if not all(isinstance(name, str) for name in content["files"]):
            return None
        return cls(**{name: content.get(name) for name in cls.__dataclass_fields__})

    def write(self, folder: Path) -> None:
        """A kill leaves the state before or this one."""
        _write_record(folder / STATE, asdict(self))

    def made(self) -> set[str]:
        """Names of all files that may have been made, half-written ones too."""
        return OWN_NAMES.union(*({name, str(part_of(name))} for name in self.files))


class Staging:
    """``DEST.partial`` as a context: ``stage`` fills it, ``publish`` renames it.

    Args:
        dest: the folder to make; links and ``..`` in it are followed here, once.
        settings: what identifies the data.
        report: name of the file that lists what was made.
        overwrite: whether data that an earlier run made are replaced, and an
            unfinished folder with other settings is begun anew.
    """

    def __init__(
        self, dest: Path, settings: Record, report: str, overwrite: bool = False
    ) -> None:
        self.dest = resolved(dest)
        self.folder = self.dest.with_name(self.dest.name + ".partial")
        self._replaced = self.dest.with_name(self.dest.name + ".replaced")
        self._report, self._overwrite = report, overwrite
        self._state = State(settings)
        # the folder that stood at DEST when the work began; whether it has data
        self._seen: int | None = None
        self._replacing = False

    def is_complete(self) -> bool:
        """Whether DEST is there with these settings, with nothing left to do.

        Finishes what a killed run left to do when its data were ready. Raises
        InputError where DEST, DEST.partial or DEST.replaced is not this tool's.
        """
        settings = self._state.settings
        finished_now = self._repair()
        if os.path.lexists(self.dest) and not _is_empty_folder(self.dest):
            recorded = read_json(self.dest / self._report).get("settings")
            if not isinstance(recorded, dict):
                raise InputError(
                    f"--dest {self.dest}: exists and holds no {self._report} of an "
                    "earlier run, so it is left alone; give another folder"
                )
            different = differences(recorded, settings)
            if not different and (finished_now or not self._overwrite):
                print(
                    f"{self.dest}: already complete with these settings, nothing to do"
                )
                return True
            if not self._overwrite:
                raise InputError(
                    f"--dest {self.dest}: already made with other settings "
                    f"({'; '.join(different)}); give another folder or --overwrite"
                )
            self._require_only_data()
            self._replacing = True
        self._require_room()
        self._seen = folder_number(self.dest)
        if not self._is_ready():
            return False
        with self:
            self.publish()
        print(f"{self.dest}: finished by an earlier run, now in its place")
        return True

    def __enter__(self) -> "Staging":
        self._require_own_work()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._acquired(self.folder)
        try:
            self._resume()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        # With nothing finished there is nothing to resume: leave no litter.
        state = State.read(self.folder)
        nothing = not (state and (state.stages or state.ready))
        if kind is not None and nothing and _is_lock_of(self.folder, self._lock):
            self._remove_work(state or State({}))
        os.close(self._lock)

    def expect(self, names: Iterable[str]) -> None:
        """Notes files that are about to be made in ``folder``, before they are."""
        new = sorted(set(names) - set(self._state.files))
        if new:
            self._state.files += new
            self._state.write(self.folder)

    def stage(self, name: str, outputs: list[str], run: Callable[[], Record]) -> Record:
        """The result of ``run``, which is called only if no earlier run finished it."""
        done = self._state.stages.get(name)
        if done and done["bytes"] == self._sizes(outputs):
            print(f"{name}: finished by an earlier run")
            return done["result"]
        self.expect(outputs)
        result = run()
        self._state.stages[name] = {"result": result, "bytes": self._sizes(outputs)}
        self._state.write(self.folder)
        return result

    def files(self) -> list[Path]:
        """What has been made so far, without the report."""
        names = sorted({*self._state.files} - {self._report}, key=Path)
        return [self.folder / name for name in names if (self.folder / name).is_file()]

    def write_report(self, content: Record) -> None:
        """Writes the file that lists the others."""
        self.expect([self._report])
        _write_record(self.folder / self._report, content)

    def publish(self) -> None:
        """Gives the folder its name; the report must be there.

        Raises InputError where DEST is no longer what it was. The finished work then
        stays, and the same command publishes it once DEST is out of the way.
        """
        self._state.ready = True
        self._state.write(self.folder)
        if self._replacing and os.path.lexists(self.dest):
            if folder_number(self.dest) != self._seen:
                raise self._in_the_way(self.dest)
            self._require_only_data()
            self._state.replaces = self._seen
            self._state.write(self.folder)
            self._rename(self.dest, self._replaced)
        self._rename(self.folder, self.dest)
        self._clean_up(self._state)

    def _rename(self, folder: Path, target: Path) -> None:
        """The system itself refuses a name at which something has appeared."""
        try:
            os.rename(folder, target)
        except OSError as error:
            if error.errno not in IN_THE_WAY:
                raise
            raise self._in_the_way(target) from None

    def _in_the_way(self, path: Path) -> InputError:
        return InputError(
            f"--dest {self.dest}: {path} appeared or changed while the data were "
            f"made, so it is left alone; they are finished in {self.folder}: move "
            f"{path} away and run the same command again, which puts them in place"
        )

    def _repair(self) -> bool:
        """Whether a run was killed after its data got their name, before it ended."""
        state = State.read(self.dest)
        if state and state.ready and (self.dest / self._report).is_file():
            with self._locked(self.dest):
                self._clean_up(state)
            return True
        state = State.read(self.folder)
        if state and state.replaces is not None and not os.path.lexists(self.dest):
            if folder_number(self._replaced) == state.replaces:
                with self._locked(self.folder):
                    os.rename(self._replaced, self.dest)
        return False

    def _clean_up(self, state: State) -> None:
        """Removes the data that were replaced, and the bookkeeping in DEST."""
        if state.replaces is not None and (
            folder_number(self._replaced) == state.replaces
        ):
            path = self._replaced / self._report
            # the list last, so that a killed run can be completed
            if path.is_file():
                made = set(listed_files(read_json(path), path))
                remove_made(self._replaced, made - {self._report})
                os.unlink(path)
            remove_if_empty(self._replaced)
            if self._replaced.exists():
                left = shown_names(foreign_names(self._replaced, set()))
                print(f"{self._replaced}: keeps {left}", file=sys.stderr)
        # the state last, for the same reason
        (self.dest / LOCK).unlink(missing_ok=True)
        (self.dest / STATE).unlink(missing_ok=True)

    def _require_only_data(self) -> None:
        """Raises InputError unless DEST holds what its report lists, and no more."""
        path = self.dest / self._report
        made = listed_files(read_json(path), path)
        foreign = foreign_names(self.dest, {*made, self._report})
        if foreign:
            raise InputError(
                f"--overwrite: {self.dest} holds {shown_names(foreign)}, which "
                f"{self._report} does not list; move away what the earlier run did "
                "not make, or give another --dest"
            )
        changed = [
            name
            for name, record in made.items()
            if (self.dest / name).is_file()
            and file_sha256(self.dest / name) != record["sha256"]
        ]
        if changed:
            raise InputError(
                f"--overwrite: {self.dest}: {shown_names(changed)} changed since "
                f"{self._report} was written; remove or move away what is not wanted, "
                "or give another --dest"
            )

    def _require_room(self) -> None:
        if os.path.ismount(self.dest):
            raise InputError(
                f"--dest {self.dest}: a mount point, which no finished folder can "
                "replace; give a folder in it"
            )
        if os.path.lexists(self._replaced):
            raise InputError(
                f"{self._replaced}: in the way, and not removed: no run that can be "
                "resumed put it there; move it away"
            )
        self._require_own_work()

    def _require_own_work(self) -> None:
        """Raises InputError where DEST.partial is no folder that this tool made."""
        if not os.path.lexists(self.folder):
            return
        is_folder = folder_number(self.folder) is not None
        if is_folder and State.read(self.folder) is not None:
            return
        # a run that was killed at its very first step leaves an empty folder
        foreign = foreign_names(self.folder, OWN_NAMES - {STATE}) if is_folder else []
        if foreign or not is_folder:
            what = f"holds {shown_names(foreign)}" if foreign else "no folder"
            raise InputError(
                f"{self.folder}: {what}; not made by this command, which works under "
                "that name: move it away, or give another --dest"
            )

    def _resume(self) -> None:
        """Takes up what an earlier run left in DEST.partial, or begins."""
        if folder_number(self.dest) != self._seen:
            raise InputError(
                f"--dest {self.dest}: changed just now, by another run; run the same "
                "command again"
            )
        earlier = State.read(self.folder)
        different = earlier and differences(earlier.settings, self._state.settings)
        if earlier:
            foreign = foreign_names(self.folder, earlier.made())
            if foreign:
                raise InputError(
                    f"{self.folder}: holds {shown_names(foreign)}, which the "
                    "unfinished run did not make; move it away"
                )
            if different and (earlier.stages or earlier.ready):
                if not self._overwrite:
                    raise InputError(
                        f"{self.folder}: unfinished work with other settings "
                        f"({'; '.join(different)}); finish it by its own command, "
                        "begin anew with --overwrite, or give another --dest"
                    )
            if different:
                remove_made(self.folder, earlier.made() - OWN_NAMES)
            else:
                self._state = earlier
        self._state.ready, self._state.replaces = False, None
        self._state.write(self.folder)

    def _is_ready(self) -> bool:
        """Whether DEST.partial has the finished data, which only wait for a name."""
        earlier = State.read(self.folder)
        if earlier is None or not earlier.ready:
            return False
        path = self.folder / self._report
        try:
            listed = listed_files(read_json(path), path)
        except InputError:
            return False
        sizes = {name: record["bytes"] for name, record in listed.items()}
        return sizes == self._sizes(list(sizes)) and not differences(
            earlier.settings, self._state.settings
        )

    def _remove_work(self, state: State) -> None:
        if self.folder.exists():
            remove_made(self.folder, state.made() - {STATE, LOCK})
            (self.folder / STATE).unlink(missing_ok=True)
            (self.folder / LOCK).unlink(missing_ok=True)
            remove_if_empty(self.folder)

    def _sizes(self, names: list[str]) -> dict[str, int | None]:
        paths = {name: self.folder / name for name in names}
        return {
            name: path.stat().st_size if path.exists() else None
            for name, path in paths.items()
        }

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        lock = self._acquired(folder)
        try:
            yield
        finally:
            os.close(lock)

    def _acquired(self, folder: Path) -> int:
        """The lock of ``folder``, a file to close; InputError if another run has it."""
        lock = None
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(folder / LOCK, flags, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # it may have published, and begun anew, between the two calls
            if _is_lock_of(folder, lock):
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        if lock is not None:
            os.close(lock)
        raise InputError(f"--dest {self.dest}: another run is preparing it")


def _write_record(path: Path, content: Record) -> None:
    """Write JSON; a kill leaves a part that ``State.made`` names."""
    write_json(path, content, part=part_of(path))


def _is_lock_of(folder: Path, lock: int) -> bool:
    path = folder / LOCK
    return path.exists() and os.path.samestat(os.fstat(lock), os.stat(path))


def _is_empty_folder(path: Path) -> bool:
    return folder_number(path) is not None and not any(os.scandir(path))

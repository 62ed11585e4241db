"""DEST is complete or absent, and the user's own files stay where and as they are."""

import hashlib
import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from data_prep.folders import sequence_folder
from data_prep.folders.options import Place
from data_prep.folders.sequence_folder import prepare_sequences
from data_prep.folders.staging import MARK
from fairseq_transnormer.cli import run_command
from fairseq_transnormer.data import MANIFEST, REPORT, SPLITS
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL
from tests.messages import assert_names

from .commands import classification, contents, copy_task, digits, recall, text
from .killed_runs import KILLED, STEPS, run_killed

NAMES = ("notes.txt", MANIFEST, "train.labels.npy", "sub/a b", "é")
CONTENTS = (b"", b"{}", b'{"settings": {}}', b"chapter one")
FOREIGN = ["notes.txt", "checkpoints/last.pt", "train.tokens.1.bin", "empty/", "link"]


def prepare(dest: Path, overwrite: bool = False, seed: int = 1) -> int:
    """A tiny preparation; its exit code."""

    def examples(split: str) -> Iterator[sequence_folder.Example]:
        random = np.random.default_rng([seed, SPLITS.index(split)])
        for label in (0, 1, 1, 0) if split == "train" else (0, 1):
            yield (random.integers(0, 9, 8, np.uint8),), label

    place, settings = Place(dest, overwrite), {"data": "text", "seed": seed}
    make = partial(prepare_sequences, place, settings, examples, 9, 2)
    return run_command("prepare", make)


def failing_at(monkeypatch, split, action):
    """Runs ``action`` when ``split`` has been written."""
    write_split = sequence_folder._write_split

    def watched(work, name, *more):
        result = write_split(work, name, *more)
        if name == split:
            action()
        return result

    monkeypatch.setattr(sequence_folder, "_write_split", watched)


def write(path: Path, content: bytes = b"chapter one") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def killed_at(split: str, dest: Path, seed: int = 1) -> Path:
    """What a run leaves that was killed after ``split`` was written."""
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731

    def command():
        with pytest.MonkeyPatch.context() as patch:
            failing_at(patch, split, die)
            return prepare(dest, seed=seed)

    assert run_killed(command, 1000, before=True) == -signal.SIGKILL
    return next(dest.parent.glob(f"{dest.name}.tmp-*"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What an undisturbed run makes, by seed."""
    top, folders = tmp_path_factory.mktemp("undisturbed"), {}
    for seed in (1, 2):
        assert prepare(top / str(seed), seed=seed) == 0
        folders[seed] = contents(top / str(seed))
        assert {*json.loads(folders[seed][MANIFEST])["files"], MANIFEST} == set(
            folders[seed]
        )
    return folders


def test_a_killed_run_starts_again(tmp_path, made):
    dest = tmp_path / "dest"
    left = killed_at("valid", dest)
    assert (left / "test.labels.npy").exists() and not dest.exists()
    assert prepare(dest, seed=2) == 0
    assert contents(dest) == made[2] and os.listdir(tmp_path) == ["dest"]


def test_a_file_of_the_users_in_what_a_killed_run_left(tmp_path, made):
    dest = tmp_path / "dest"
    notes = write(killed_at("valid", dest) / "notes.txt")
    assert prepare(dest) == 0
    assert contents(dest) == made[1] and contents(notes.parent) == {
        "notes.txt": b"chapter one"
    }


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_run_that_fails(tmp_path, monkeypatch, error):
    def fail():
        raise error

    failing_at(monkeypatch, "train", fail)
    try:
        assert prepare(tmp_path / "dest") == 130
    except RuntimeError:
        pass
    assert os.listdir(tmp_path) == []


def test_two_runs_do_not_mix(tmp_path, made, monkeypatch, capsys):
    dest, second = tmp_path / "dest", []
    with monkeypatch.context() as patch:
        failing_at(patch, "train", lambda: second.append(prepare(dest)))
        assert prepare(dest) == 0
    assert second == [2]
    assert_names(capsys.readouterr().err, dest, "another run")
    assert contents(dest) == made[1] and os.listdir(tmp_path) == ["dest"]


@pytest.mark.parametrize("there", ["nothing", "empty folder", "data"])
def test_data_go_where_a_link_points(tmp_path, made, there):
    disk, link = tmp_path / "disk" / "data", tmp_path / "link"
    disk.parent.mkdir()
    link.symlink_to(disk)
    if there == "empty folder":
        disk.mkdir()
    elif there == "data":
        assert prepare(link, seed=2) == 0
    assert prepare(link, overwrite=there == "data") == 0
    assert link.is_symlink() and contents(disk) == made[1]
    assert sorted(os.listdir(tmp_path)) == ["disk", "link"]
    assert os.listdir(disk.parent) == ["data"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file", "data", "prepared"])
def test_what_appears_meanwhile_stays(
    tmp_path, made, monkeypatch, capsys, kind, overwrite
):
    dest, other = tmp_path / "dest", tmp_path / "other"
    assert prepare(other, seed=2) == 0

    def appear():
        if kind == "prepared":
            shutil.copytree(other, dest)
        elif kind == "data":
            write(dest / "thesis.doc")
            write(dest / MANIFEST, b'{"settings": {}, "files": {}}')
        else:
            write(dest / "thesis.doc" if kind == "folder" else dest)

    with monkeypatch.context() as patch:
        failing_at(patch, "train", appear)
        assert prepare(dest, overwrite) == 2
    left = next(tmp_path.glob("dest.tmp-*"))
    assert_names(capsys.readouterr().err, "--dest", dest, left)
    users = contents(dest).values() if dest.is_dir() else [dest.read_bytes()]
    assert (b"chapter one" in users) != (dest.is_dir() and contents(dest) == made[2])
    # the finished data are taken once the place is free, and none that changed
    dest.rename(tmp_path / "moved")
    file = next(left.glob("train*"))
    kept = file.read_bytes()
    file.write_bytes(b"")
    assert prepare(dest, overwrite) == 2 and not dest.exists()
    file.write_bytes(kept)
    with monkeypatch.context() as patch:
        failing_at(patch, "train", lambda: pytest.fail("made again"))
        assert prepare(dest, overwrite) == 0
    assert contents(dest) == made[1] and not left.exists()


@pytest.mark.parametrize("there", ["empty", "data"])
def test_a_mount_point_keeps_what_it_has(tmp_path, monkeypatch, capsys, there):
    dest = tmp_path / "dest"
    dest.mkdir()
    assert there == "empty" or prepare(dest) == 0
    before = contents(dest)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == dest)
    assert prepare(dest, overwrite=True, seed=2) == 2
    assert_names(capsys.readouterr().err, "--dest", dest, "mount point")
    assert contents(dest) == before


def test_the_name_of_work_is_taken(tmp_path, made):
    """A killed run's finished data, whose number the next process has, too."""
    dest, taken = tmp_path / "dest", tmp_path / f"dest.tmp-{os.getpid()}"
    assert prepare(tmp_path / "other", seed=2) == 0
    (tmp_path / "other").rename(taken)
    assert prepare(dest) == 0
    assert contents(dest) == made[1] and contents(taken) == made[2]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_no_preparation_made_is_refused(tmp_path, capsys, overwrite):
    dest = tmp_path / "dest"
    write(dest / "thesis.doc")
    for report in (None, b"3", b"{", b'{"settings": {}}', b'{"a": 1, "files": {}}'):
        if report:
            write(dest / MANIFEST, report)
        before = contents(tmp_path)
        assert prepare(dest, overwrite) == 2
        assert_names(capsys.readouterr().err, "--dest", dest, MANIFEST)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("name", FOREIGN)
def test_overwrite_refuses_files_of_the_users(tmp_path, made, capsys, name):
    dest = tmp_path / "dest"
    assert prepare(dest) == 0
    if name == "link":
        (dest / name).symlink_to(tmp_path)
    elif name.endswith("/"):
        (dest / name).mkdir()
    else:
        write(dest / name)
    before = contents(tmp_path)
    assert prepare(dest, overwrite=True, seed=2) == 2
    assert_names(capsys.readouterr().err, dest, name.split("/")[0])
    assert contents(tmp_path) == before and (dest / name).exists()
    (dest / name.split("/")[0]).rename(tmp_path / "away")
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert contents(dest) == made[2]


def test_other_settings_and_changed_files(tmp_path, made, capsys):
    dest = tmp_path / "dest"
    assert prepare(dest) == 0 and prepare(dest) == 0
    assert "already complete" in capsys.readouterr().out
    assert prepare(dest, seed=2) == 2
    assert_names(capsys.readouterr().err, dest, "seed", 1, 2, "--overwrite")
    changed = write(sorted(dest.glob("*.bin"))[0], b"the user's own")
    assert prepare(dest, overwrite=True, seed=2) == 2
    assert_names(capsys.readouterr().err, dest, changed.name, "changed")
    assert changed.read_bytes() == b"the user's own"
    changed.unlink()
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert contents(dest) == made[2]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_folder_that_lost_data_is_not_complete(change, tmp_path, capsys):
    dest = tmp_path / "dest"
    assert prepare(dest) == 0
    lost = sorted(dest.glob("*.bin"))[0]
    change(lost)
    assert prepare(dest) == 2
    assert_names(capsys.readouterr().err, lost, MANIFEST)


@pytest.mark.parametrize(
    "overwrite", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_every_step_can_be_the_last(tmp_path, made, overwrite):
    """Killed before any of them, the same command makes the same folder."""
    step, code = -1, KILLED
    while code == KILLED:
        step += 1
        dest = tmp_path / str(step) / "dest"
        if overwrite:
            assert prepare(dest, seed=2) == 0
        code = run_killed(lambda dest=dest: prepare(dest, overwrite), step, True)
        # the old data are there, under one name or the other, until the new ones are
        names = [dest, *dest.parent.glob("dest.tmp-*")]
        found = [contents(path).items() for path in names if path.exists()]
        whole = [folder.items() for folder in made.values()]
        kept = any(data <= each for data in whole for each in found)
        assert kept or not overwrite, step
        assert prepare(dest, overwrite) == 0, step
        assert contents(dest) == made[1], step
        assert os.listdir(dest.parent) == ["dest"], step
    assert code == 0 and step > 12


def random_tree(folder: Path, draw: random.Random) -> None:
    """Nothing, a file, a link or a folder of the user's."""
    kind = draw.choice(("nothing", "nothing", "file", "link", "folder", "folder"))
    if kind == "file":
        write(folder, draw.choice(CONTENTS))
    elif kind == "link":
        folder.symlink_to(draw.choice(("none", "../other", ".")))
    elif kind == "folder":
        folder.mkdir()
        for name in draw.sample(NAMES, draw.randrange(4)):
            write(folder / name, draw.choice(CONTENTS))


@pytest.mark.parametrize(
    "seed",
    [*range(6), *(pytest.param(each, marks=pytest.mark.slow) for each in range(6, 40))],
)
def test_random_trees(tmp_path, made, seed):
    """Succeeding, failing or killed: every file and link of the user's is kept."""
    draw = random.Random(seed)
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    write(other / "thesis.doc")
    dest = work / "dest"
    earlier = draw.choice(("nothing", "nothing", "data", "unfinished", "both"))
    place = dest
    if earlier in ("data", "both"):
        assert prepare(dest, seed=draw.choice((1, 2))) == 0
    if earlier == "unfinished":
        place = killed_at("valid", dest, draw.choice((1, 2)))
    if draw.random() < 0.3 and earlier != "nothing":
        write(place / draw.choice(("notes.txt", "sub/a b")))
    ours = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    for name in ("dest.tmp.txt", "dest.old/thesis.doc", "destination"):
        write(work / name)
    for end in draw.sample(("", ".tmp-1", ".tmp-1.old"), draw.choice((0, 0, 1, 3))):
        if not os.path.lexists(f"{dest}{end}"):
            random_tree(Path(f"{dest}{end}"), draw)
    users = {
        name: content
        for name, content in contents(tmp_path).items()
        if tmp_path / name not in ours or Path(name).name in ("notes.txt", "a b")
    }
    given = draw.choice((dest, Path(f"{work}/none/../dest"), Path(f"{dest}/x/..")))
    for _ in range(3):
        overwrite, settings = draw.random() < 0.6, draw.choice((1, 2))
        step = draw.choice((1000, draw.randrange(12), draw.randrange(30)))
        run_killed(
            lambda overwrite=overwrite, settings=settings: prepare(
                given, overwrite, settings
            ),
            step,
            draw.random() < 0.5,
            draw.choice((STEPS, ("rename",))),
        )
        now = contents(tmp_path)
        lost = {name for name in users if now.get(name) != users[name]}
        assert not lost, (lost, earlier)


def words(text_files) -> list[str]:
    splits = [part for s, path in text_files.items() for part in (f"--{s}", path)]
    return ["--tokenizer", "word", *map(str, splits)]


@pytest.mark.parametrize(
    "maker", ["words", "pieces", "labels", "numbers", "copy_task", "recall", "digits"]
)
def test_every_maker_lists_all_that_it_made(
    tmp_path, text_files, pretraining_data, maker
):
    """So that --overwrite knows its own files; it needs a second run to show."""
    rows = [f"{i}.5\tabc {i}" for i in range(8)]
    table = write(tmp_path / "t.tsv", "\n".join(["label\ttext", *rows]).encode())
    labelled = ["--data", str(pretraining_data), "--train", str(table)]
    labelled += ["--valid", str(table), "--test", str(table)]
    pieces = ["--sentencepiece-model", str(pretraining_data / SENTENCEPIECE_MODEL)]
    dest = tmp_path / "dest"
    main, arguments = {
        "words": (text, words(text_files)),
        "pieces": (text, [*words(text_files), *pieces]),
        "labels": (classification, labelled),
        "numbers": (classification, [*labelled, "--regression"]),
        "copy_task": (copy_task, ["--longest", "4", "--counts", "3", "2", "2"]),
        "recall": (recall, ["--counts", "3", "2", "2"]),
        "digits": (digits, []),
    }[maker]
    if maker == "pieces":
        arguments[1] = "sentencepiece"
    for _ in range(2):
        assert main(["--dest", dest, "--overwrite", *arguments]) == 0
        listed = json.loads((dest / REPORT).read_text())["files"]
        assert {*listed, REPORT} == set(contents(dest))
    assert not [*tmp_path.glob("dest.*")]


@pytest.mark.parametrize("way", ["absolute", "above"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_listing_that_names_files_elsewhere_removes_none(tmp_path, way, earlier):
    dest, precious = tmp_path / "dest", write(tmp_path / "precious.txt")
    name = str(precious) if way == "absolute" else "../precious.txt"
    sums = {"bytes": 11, "sha256": hashlib.sha256(b"chapter one").hexdigest()}
    listing = {"settings": {}, "splits": {}, "files": {}}
    if earlier:
        assert prepare(dest) == 0
        listing = json.loads((dest / MANIFEST).read_text())
    listing["files"][name] = sums
    write(dest / MANIFEST, json.dumps(listing).encode())
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert precious.exists()


def test_a_mark_that_names_files_elsewhere_removes_none(tmp_path, made):
    precious = write(tmp_path / "precious.txt")
    names = f"{precious}\n../precious.txt\n"
    write(tmp_path / "dest.tmp-77" / MARK, names.encode())
    assert prepare(tmp_path / "dest") == 0
    assert precious.exists() and contents(tmp_path / "dest") == made[1]


def test_a_folder_of_a_like_name_is_another(tmp_path, made, capsys):
    other = tmp_path / "dest.tmp-b"
    assert prepare(other) == 0 and prepare(tmp_path / "dest") == 0
    assert contents(other) == contents(tmp_path / "dest") == made[1]
    assert prepare(tmp_path / "dest.tmp-7") == 2
    assert_names(capsys.readouterr().err, "dest.tmp-7")


@pytest.mark.parametrize("mark", [None, b"", b"train.lab"])
def test_what_a_full_disk_left_is_removed(tmp_path, made, mark):
    (tmp_path / "dest.tmp-77").mkdir()
    if mark is not None:
        write(tmp_path / "dest.tmp-77" / MARK, mark)
    assert prepare(tmp_path / "dest") == 0
    assert os.listdir(tmp_path) == ["dest"]


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, capsys):
    source = write(tmp_path / "a.txt", b"one two three\n" * 50)
    from data_prep.folders import binary_folder

    write_split = binary_folder.write_split

    def changing(*given):
        source.write_bytes(b"other words\n" * 50)
        return write_split(*given)

    monkeypatch.setattr(binary_folder, "write_split", changing)
    words = ["--train", source, "--valid", source, "--tokenizer", "word"]
    assert text([*words, "--dest", tmp_path / "dest"]) == 2
    assert_names(capsys.readouterr().err, source, "changed")
    assert not (tmp_path / "dest").exists()

"""Whatever a preparation does, the user's own files stay where and as they are."""

import json
import os
import random
from pathlib import Path

import pytest

from data_prep.documentation.corpus import SPLITS, prepare_corpus
from data_prep.folders import sequence_folder
from data_prep.folders.arguments import add_destination, command_parser
from data_prep.folders.destination import listed_files
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.sequence_folder import (
    MANIFEST,
    prepare_sequences,
    verify_sequences,
)
from data_prep.labelled_texts import classification
from data_prep.long_range_arena import lra_stand_ins
from data_prep.own_text import text
from data_prep.symbols import copy_task, digits, recall
from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL
from tests.messages import assert_names

from .killed_runs import KILLED, STEPS, run_killed

# with those that the tool itself uses
NAMES = ("notes.txt", ".stages.json", MANIFEST, "train.labels.npy", "sub/a b", "é")
CONTENTS = (b"", b"{}", b'{"settings": {}}', b"chapter one")


def prepare(dest: Path, overwrite: bool = False, seed: int = 1) -> int:
    """A tiny preparation in stages; its exit code."""
    recipe = lra_stand_ins.recipe("text", [4, 2, 2], 8, seed)
    return run_command("prepare", lambda: prepare_sequences(dest, recipe, overwrite))


def failing_at(monkeypatch, split, action):
    """Runs ``action`` when ``split`` has been written."""
    write_split = sequence_folder._write_split

    def watched(folder, name, recipe):
        result = write_split(folder, name, recipe)
        if name == split:
            action()
        return result

    monkeypatch.setattr(sequence_folder, "_write_split", watched)


def unfinished(dest, monkeypatch, seed=1):
    """An earlier run's finished stages, in DEST.partial."""

    def power_cut():
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        failing_at(patch, "train", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            prepare(dest, seed=seed)
    return dest.with_name(dest.name + ".partial")


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below ``folder``."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def write(path: Path, content: bytes = b"chapter one") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def made(tmp_path):
    """What an undisturbed run makes, by seed."""
    folders = {}
    for seed in (1, 2):
        assert prepare(tmp_path / "undisturbed" / str(seed), seed=seed) == 0
        folders[seed] = contents(tmp_path / "undisturbed" / str(seed))
    return folders


def given(name: str) -> Path:
    """DEST as the command line takes it."""
    parser = command_parser("prepare", "")
    add_destination(parser)
    return parser.parse_args(["--dest", name]).dest


def test_parent_of_a_folder_that_does_not_exist(tmp_path, capsys):
    work = tmp_path / "my_work"
    write(work / "thesis.doc")
    before = contents(tmp_path)
    assert prepare(Path(f"{work}/typo/..")) == 2
    assert_names(capsys.readouterr().err, "--dest", work, MANIFEST)
    assert contents(tmp_path) == before


def test_links_and_dots_are_followed_once(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/data")
    assert given(f"{tmp_path}/none/../link") == tmp_path / "disk" / "data"
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for name in ("", "/", f"{tmp_path}/one"):
        with pytest.raises(SystemExit):
            given(name)


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
    assert sorted(os.listdir(tmp_path)) == ["disk", "link", "undisturbed"]
    assert os.listdir(disk.parent) == ["data"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file", "link", "link to nothing"])
def test_destination_that_appears_meanwhile(
    tmp_path, made, monkeypatch, capsys, kind, overwrite
):
    dest, partial = tmp_path / "dest", tmp_path / "dest.partial"

    def appear():
        if kind == "folder":
            write(dest / "thesis.doc")
        elif kind == "file":
            write(dest)
        else:
            dest.symlink_to(tmp_path if kind == "link" else tmp_path / "none")

    with monkeypatch.context() as patch:
        failing_at(patch, "train", appear)
        assert prepare(dest, overwrite) == 2
    assert_names(capsys.readouterr().err, "--dest", dest, partial)
    assert os.path.lexists(dest) and (dest.is_symlink() or contents(dest) or kind)
    with monkeypatch.context() as patch:

        def repeated():
            raise AssertionError("made again")

        for split in ("train", "valid", "test"):
            failing_at(patch, split, repeated)
        dest.rename(tmp_path / "moved")
        assert prepare(dest, overwrite) == 0
    assert contents(dest) == made[1] and not partial.exists()
    assert os.path.lexists(tmp_path / "moved")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file", "link to nothing", "link"])
@pytest.mark.parametrize("end", [".partial", ".replaced"])
def test_foreign_work_folders(tmp_path, capsys, end, kind, overwrite):
    dest, beside = tmp_path / "dest", tmp_path / f"dest{end}"
    elsewhere = write(tmp_path / "elsewhere" / "notes.txt").parent
    if overwrite:
        assert prepare(dest, seed=2) == 0
    if kind == "folder":
        write(beside / "thesis.doc")
        write(beside / ".lock", b"mine")
    elif kind == "file":
        write(beside)
    else:
        beside.symlink_to(elsewhere if kind == "link" else "nowhere")
    before = contents(tmp_path)
    assert prepare(dest, overwrite) == 2
    assert_names(capsys.readouterr().err, beside)
    assert contents(tmp_path) == before


def test_unfinished_work_with_other_settings(tmp_path, made, monkeypatch, capsys):
    dest = tmp_path / "dest"
    partial = unfinished(dest, monkeypatch)
    before = contents(partial)
    assert prepare(dest, seed=2) == 2
    message = capsys.readouterr().err
    assert_names(message, partial, "seed", 1, 2, "--overwrite")
    assert contents(partial) == before
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert contents(dest) == made[2] and not partial.exists()


@pytest.mark.parametrize("seed", [1, 2])
def test_unfinished_work_with_a_file_of_the_users(tmp_path, monkeypatch, capsys, seed):
    dest = tmp_path / "dest"
    notes = write(unfinished(dest, monkeypatch) / "notes.txt")
    assert prepare(dest, overwrite=True, seed=seed) == 2
    assert_names(capsys.readouterr().err, notes.parent, "notes.txt")
    assert notes.read_bytes() == b"chapter one"
    notes.unlink()
    assert prepare(dest, overwrite=True, seed=seed) == 0


@pytest.mark.parametrize(
    "name", ["notes.txt", "checkpoints/last.pt", "train.tokens.1.bin", "empty/", "link"]
)
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
    assert_names(capsys.readouterr().err, "--overwrite", dest, name.split("/")[0])
    assert contents(tmp_path) == before and (dest / name).exists()
    (dest / name.split("/")[0]).rename(tmp_path / "away")
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert contents(dest) == made[2]


def test_overwrite_refuses_a_file_that_was_changed(tmp_path, made, capsys):
    dest = tmp_path / "dest"
    assert prepare(dest) == 0
    changed = sorted(dest.glob("*.bin"))[0]
    changed.write_bytes(b"the user's own")
    before = contents(tmp_path)
    assert prepare(dest, overwrite=True, seed=2) == 2
    assert_names(capsys.readouterr().err, "--overwrite", dest, changed.name, "changed")
    assert contents(tmp_path) == before
    changed.unlink()
    assert prepare(dest, overwrite=True, seed=2) == 0
    assert contents(dest) == made[2]


def test_overwrite_refuses_a_report_that_cannot_be_read(tmp_path, capsys):
    dest = tmp_path / "dest"
    write(dest / "thesis.doc")
    for files in ("3", '["thesis.doc"]', '{"../x": {}}', '{"thesis.doc": 1}', "null"):
        write(dest / MANIFEST, f'{{"settings": {{}}, "files": {files}}}'.encode())
        before = contents(tmp_path)
        assert prepare(dest, overwrite=True) == 2, files
        assert_names(capsys.readouterr().err, "manifest.json")
        assert contents(tmp_path) == before


def test_file_put_beside_the_data_in_the_last_moment(tmp_path, made, monkeypatch):
    dest = tmp_path / "dest"
    assert prepare(dest, seed=2) == 0
    rename = os.rename

    def late(source, target):
        if str(target).endswith(".replaced"):
            write(dest / "notes.txt")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert prepare(dest, overwrite=True) == 0
    assert contents(dest) == made[1]
    assert contents(tmp_path / "dest.replaced") == {"notes.txt": b"chapter one"}


def test_a_mount_point_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    dest = tmp_path / "dest"
    dest.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == dest)
    assert prepare(dest) == 2
    assert_names(capsys.readouterr().err, "--dest", dest)
    assert os.listdir(tmp_path) == ["dest"]


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
        names = [dest, dest.with_name("dest.replaced")]
        found = [contents(path).items() for path in names if path.exists()]
        whole = [folder.items() for folder in made.values()]
        kept = any(data <= each for data in whole for each in found)
        assert kept or not overwrite, step
        assert prepare(dest, overwrite) == 0, step
        assert contents(dest) == made[1], step
        assert os.listdir(dest.parent) == ["dest"], step
    assert code == 0 and step > 12


def test_a_command_with_other_settings_after_a_kill_restores(tmp_path, made, capsys):
    dest = tmp_path / "dest"
    assert prepare(dest, seed=2) == 0
    command = lambda: prepare(dest, overwrite=True)  # noqa: E731
    assert run_killed(command, 0, before=False, names=("rename",)) == KILLED
    assert not dest.exists()
    assert prepare(dest, seed=3) == 2
    assert_names(capsys.readouterr().err, "seed", 2, 3)
    assert contents(dest) == made[2]
    assert prepare(dest, overwrite=True) == 0
    assert contents(dest) == made[1]
    assert sorted(os.listdir(dest.parent)) == ["dest", "undisturbed"]


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
def test_random_trees(tmp_path, monkeypatch, made, seed):
    """Succeeding, failing or killed: every file and link of the user's is kept."""
    draw = random.Random(seed)
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    write(other / "thesis.doc")
    dest = work / "dest"
    earlier = draw.choice(("nothing", "nothing", "data", "unfinished", "both"))
    if earlier in ("data", "both"):
        assert prepare(dest, seed=draw.choice((1, 2))) == 0
    if earlier in ("unfinished", "both") and not dest.exists():
        unfinished(dest, monkeypatch, draw.choice((1, 2)))
    if draw.random() < 0.3 and earlier != "nothing":
        place = dest if dest.exists() else dest.with_name("dest.partial")
        write(place / draw.choice(("notes.txt", "sub/a b")))
    ours = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    for name in ("dest.partial.txt", "dest.old/thesis.doc", "destination"):
        write(work / name)
    for end in draw.sample(("", ".partial", ".replaced"), draw.choice((0, 0, 1, 3))):
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
    "maker",
    [
        *("words", "pieces", "labels", "numbers", "copy_task", "recall", "digits"),
        "corpus",
    ],
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
    small = ["--longest", "4", "--counts", "3", "2", "2"]
    dest = tmp_path / "dest"

    def corpus(arguments):
        splits = {name: {"a": [f"one {name}"]} for name in SPLITS}
        overwrite = "--overwrite" in arguments
        prepare_corpus(dest, {}, overwrite, lambda: splits)
        return 0

    main, arguments = {
        "words": (text.main, words(text_files)),
        "pieces": (text.main, [*words(text_files), *pieces]),
        "labels": (classification.main, labelled),
        "numbers": (classification.main, [*labelled, "--regression"]),
        "copy_task": (copy_task.main, small),
        "recall": (recall.main, ["--counts", "3", "2", "2"]),
        "digits": (digits.main, []),
        "corpus": (corpus, []),
    }[maker]
    if maker == "pieces":
        arguments[1] = "sentencepiece"
    for _ in range(2):
        assert main(["--dest", str(dest), "--overwrite", *arguments]) == 0
        report = dest / (MANIFEST if maker == "corpus" else REPORT)
        listed = listed_files(json.loads(report.read_text()), report)
        assert {*listed, report.name} == set(contents(dest))
    assert not dest.with_name("dest.replaced").exists()


def test_another_run_in_the_meantime(tmp_path, monkeypatch, capsys):
    """One that publishes while this one works is not replaced."""
    dest = tmp_path / "dest"
    with monkeypatch.context() as patch:
        moved = tmp_path / "elsewhere"
        assert prepare(moved, seed=2) == 0
        failing_at(patch, "train", lambda: os.rename(moved, dest))
        assert prepare(dest, overwrite=True) == 2
    assert_names(capsys.readouterr().err, dest)
    assert verify_sequences(dest)["settings"]["seed"] == 2


def test_input_error_is_what_callers_get(tmp_path):
    write(tmp_path / "dest" / "thesis.doc")
    recipe = lra_stand_ins.recipe("text", [4, 2, 2], 8, 1)
    with pytest.raises(InputError):
        prepare_sequences(tmp_path / "dest", recipe, overwrite=True)

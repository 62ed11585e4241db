"""Killed runs resume where they were; DEST is complete or absent."""

import json
import os
import signal

import pytest

from data_prep.folders import binary_folder
from data_prep.folders.errors import InputError
from data_prep.folders.staging import Staging
from data_prep.own_text import text

from .killed_runs import run_killed


@pytest.fixture
def arguments(text_files):
    """All options but --dest."""
    given = ["--tokenizer", "word"]
    for split, path in text_files.items():
        given += [f"--{split}", str(path)]
    return given


@pytest.fixture
def encoded(monkeypatch):
    """The splits that have been encoded, as they are."""
    splits = []
    write_split = binary_folder.write_split

    def watched(folder, split, *rest):
        splits.append(split)
        return write_split(folder, split, *rest)

    monkeypatch.setattr(binary_folder, "write_split", watched)
    return splits


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_run_resumes(tmp_path, arguments, encoded, monkeypatch, capsys):
    undisturbed, dest = tmp_path / "undisturbed", tmp_path / "dest"
    assert text.main(["--dest", str(undisturbed), *arguments]) == 0
    encoded.clear()

    def command():
        write_split = binary_folder.write_split

        def killed(folder, split, *rest):
            if split == "train":
                (folder / "train.bin").write_bytes(b"half of it")
                os.kill(os.getpid(), signal.SIGKILL)
            return write_split(folder, split, *rest)

        binary_folder.write_split = killed
        return text.main(["--dest", str(dest), *arguments])

    assert run_killed(command, 1000, before=True) == -signal.SIGKILL
    assert not dest.exists()
    state = json.loads((tmp_path / "dest.partial" / ".stages.json").read_text())
    assert list(state["stages"]) == ["tokenizer", "encode valid", "encode test"]

    def repeated(*_):
        raise AssertionError("the words were counted again")

    monkeypatch.setattr(text, "count_all_words", repeated)
    assert text.main(["--dest", str(dest), *arguments]) == 0
    assert encoded == ["train"]
    assert "encode valid: finished by an earlier run" in capsys.readouterr().out
    assert contents(dest) == contents(undisturbed)
    assert not (tmp_path / "dest.partial").exists()


def fail_after(monkeypatch, split):
    write_split = binary_folder.write_split

    def failing(folder, name, *rest):
        result = write_split(folder, name, *rest)
        if name == split:
            raise RuntimeError("power cut")
        return result

    monkeypatch.setattr(binary_folder, "write_split", failing)
    return write_split


@pytest.mark.parametrize("change", ["settings", "input", "damage"])
def test_what_does_not_fit_is_made_again(
    tmp_path, arguments, encoded, text_files, monkeypatch, fails, change
):
    dest = tmp_path / "dest"
    with monkeypatch.context() as patch:
        fail_after(patch, "train")
        with pytest.raises(RuntimeError, match="power cut"):
            text.main(["--dest", str(dest), *arguments])
    assert not dest.exists() and (tmp_path / "dest.partial").exists()
    encoded.clear()
    expected = ["valid", "test", "train"]
    if change == "settings":
        arguments += ["--min-count", "2"]
    elif change == "input":
        text_files["test"].write_text("the\n")
    else:
        os.truncate(tmp_path / "dest.partial" / "test.bin", 10)
        expected = ["test", "train"]
    if change != "damage":
        fails(text.main, ["--dest", dest, *arguments], "--overwrite", dest=dest)
        assert (tmp_path / "dest.partial" / "train.bin").exists()
        arguments.append("--overwrite")
    assert text.main(["--dest", str(dest), *arguments]) == 0
    assert encoded == expected


def test_two_runs_do_not_mix(tmp_path, arguments, fails):
    dest = tmp_path / "dest"
    with Staging(dest, {}, "report.json"):
        parts = [str(dest), "another run"]
        fails(text.main, ["--dest", dest, *arguments], *parts, dest=dest)
    assert text.main(["--dest", str(dest), *arguments]) == 0


def test_nothing_is_left_of_a_run_that_finished_no_stage(tmp_path):
    with pytest.raises(InputError), Staging(tmp_path / "dest", {}, "r") as staging:
        staging.expect(["begun"])
        (staging.folder / "begun").write_text("")
        raise InputError("no")
    assert list(tmp_path.iterdir()) == []


def test_system_errors_and_interrupts_end_in_one_message(
    tmp_path, arguments, fails, monkeypatch
):
    dest = tmp_path / "dest"

    def failing(error):
        def write_split(*_):
            raise error

        monkeypatch.setattr(binary_folder, "write_split", write_split)

    failing(OSError(28, "No space left on device", "train.bin"))
    parts = ["train.bin", "No space left"]
    fails(text.main, ["--dest", dest, *arguments], *parts, dest=dest)
    failing(KeyboardInterrupt())
    parts = ["interrupted", "same command"]
    fails(text.main, ["--dest", dest, *arguments], *parts, dest=dest, code=130)

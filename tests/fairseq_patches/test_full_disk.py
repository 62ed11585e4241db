"""A disk that is full: old checkpoints stay, one error says so, and the run resumes."""

import subprocess

import pytest

from tests.messages import assert_names

from .trainings import line_with

ROOM = 1_400_000  # for three checkpoints and a half of 372 kB


@pytest.fixture
def small_disk(tmp_path):
    """A file system of ``ROOM`` bytes, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "small", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(training, goes_on, tell, small_disk):
    run = training()
    run.save_dir = small_disk / "checkpoints"
    codes = run.run()
    assert codes == [1], run.text()
    said = line_with(run.text(), "OSError: ")
    assert_names(said, run.save_dir.name, "cannot be written", "No space left")
    assert run.text().count("Traceback") == 1
    done = max(run.losses())
    left = sorted(path.name for path in run.save_dir.glob("checkpoint*"))
    assert left == ["checkpoint_1_3.pt", "checkpoint_best.pt", "checkpoint_last.pt"]
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    at = goes_on(run)
    assert at == 3
    tell("full disk", codes, done, at, said)

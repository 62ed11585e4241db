"""scripts/build_fairseq_wheel.sh: what it takes, changes and asks pip for.

A stand-in for Python gives it a release of one file; the real one takes minutes and a
network. docs/install.md says what was run with the real wheel.
"""

import os
import re
import subprocess
import tarfile

import pytest

from tests.messages import process_refuses
from tests.paths import ROOT, SCRIPTS

PATCHES = sorted((SCRIPTS / "fairseq_patches").glob("*.patch"))
# what stands before a change in a patch, and what it makes of it
OLD, NEW = (re.compile(rf"^[ {sign}](?!-- |\+\+ )(.*)$", re.M) for sign in "-+")
WHEEL = "fairseq-0.12.2+x.whl"
PYTHON = """#!/bin/sh
echo "$@" $PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT >>{asked}
case "$*" in
    *version_info*) echo {version} ;;
    *"pip download"*) cp {release} "$9" && cp "$9/requirements.txt" {asked}.txt ;;
    *"pip wheel"*) cp -r "$8" {asked}.tree && mkdir "$7" && touch "$7/{wheel}" ;;
esac
"""


def release(folder):
    """The release's files that are patched, as far as the patches show them."""
    tree = folder / "fairseq-0.12.2"
    for patch in PATCHES:
        for part in re.split(r"^--- a/", patch.read_text(), flags=re.M)[1:]:
            name, _, changes = part.partition("\n")
            lines = []
            for chunk in re.split(r"^@@ -(\d+).*@@.*\n", changes, flags=re.M)[1:]:
                if chunk.isdecimal():
                    lines += ["# of the release"] * (int(chunk) - 1 - len(lines))
                else:
                    lines += OLD.findall(chunk)
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            ends = "" if "\\ No newline" in changes else "\n"
            (tree / name).write_text("\n".join(lines) + ends)
    return tree


@pytest.fixture
def build(tmp_path):
    """build(*arguments): the script with the stand-in; what it was asked, and where."""
    tree, clone = release(tmp_path), tmp_path / "a clone"
    clone.symlink_to(ROOT)

    def run(*arguments, version="3.11", spoil=None):
        if spoil:
            (tree / spoil).write_text("of another release\n")
        archive = tmp_path / "fairseq-0.12.2.tar.gz"
        with tarfile.open(archive, "w:gz") as file:
            file.add(tree, tree.name)
        asked, python = tmp_path / "asked", tmp_path / "python"
        python.write_text(
            PYTHON.format(asked=asked, release=archive, version=version, wheel=WHEEL)
        )
        python.chmod(0o755)
        done = subprocess.run(
            ["bash", clone / "scripts/build_fairseq_wheel.sh", *arguments],
            env=os.environ | {"PYTHON": str(python)},
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        return done, asked

    return run


def test_the_release_is_pinned_patched_and_built(build, tmp_path):
    done, asked = build("--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [each.name for each in (tmp_path / "out").iterdir()] == [
        "fairseq-0.12.2+x.whl"
    ]
    wanted = asked.with_suffix(".txt").read_text()
    assert re.fullmatch(r"fairseq==0\.12\.2 --hash=sha256:[0-9a-f]{64}\n", wanted)
    (download,) = [
        each for each in asked.read_text().splitlines() if "download" in each
    ]
    assert "--require-hashes" in download and "--no-deps" in download
    constraints = (tmp_path / "a clone/constraints.txt").as_uri()
    assert download.split()[-2:] == [constraints] * 2
    changed = 0
    for patch in PATCHES:
        for part in re.split(r"^--- a/", patch.read_text(), flags=re.M)[1:]:
            name, _, changes = part.partition("\n")
            text = (asked.with_suffix(".tree") / name).read_text()
            for line in re.findall(r"^\+(?!\+\+ )(.*\S.*)$", changes, re.M):
                assert line in text, (name, line)
                changed += 1
    assert changed > 25


def test_another_release_is_refused_and_no_wheel_left(build, tmp_path):
    done, _ = build("--out", tmp_path / "out", spoil="pyproject.toml")
    process_refuses(done, "3-build.patch", "0.12.2")
    assert not (tmp_path / "out").exists()

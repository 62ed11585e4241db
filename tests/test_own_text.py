"""scripts/own_text.sh: what it makes, resumes and refuses."""

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.inference.models import sentences
from tests.messages import assert_names, lines_naming
from tests.paths import ROOT

LANGUAGES = {"en": str, "caps": str.upper, "back": lambda line: line[::-1]}
# in the place of .venv's Python: the commands that $PLAYED names only say their options
PYTHON = f"""#!/usr/bin/env bash
case " $PLAYED " in
    *" $3 "*)
        printf '%s\\n' "$@"
        [ "$3" != "$ENDS" ] || exit "$CODE"
        [ "$3" != "$WAITS" ] || exec {sys.executable} -c "$WAITING"
        ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
WAITING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
print("it waits", flush=True)
while True:  # a signal in front of signal.pause() would be lost
    time.sleep(0.02)
"""
USES = "score generate analyse"
TINY = "--gpus 0 --tokens-per-sample 64 --batch-size 4 --width 64 --layers 2"
TINY += " --vocab-size 480"


@pytest.fixture
def place(tmp_path):
    """The script in a folder of its own, and texts, a file a language."""
    shutil.copytree(
        ROOT / "scripts", tmp_path / "scripts", ignore=lambda *_: ["install.sh"]
    )
    (tmp_path / "scripts/install.sh").write_text("exit 0")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / "texts").mkdir()
    for name, written in LANGUAGES.items():
        lines = [written(line.replace("€", ".")) for line in sentences(120)]
        text = "\n\n".join(f"{line} {i}" for i, line in enumerate(lines))
        (tmp_path / f"texts/{name}.txt").write_text(text + "\n")
    return tmp_path


@pytest.fixture(autouse=True)
def hang_up():
    """The signal is not ignored, as it is of tests under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def start(place: Path, *arguments: str, played: str = USES, **options: object):
    """A process of the script; stderr goes where stdout goes.

    Args:
        played: commands that do nothing.
        options: ends, code: one of them, and its exit code; waits: one that goes on.
    """
    script = place / "scripts/own_text.sh"
    command = ["bash", script, "texts", "--dest", "run", *TINY.split(), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PLAYED": played, "OMP_NUM_THREADS": "1"}
    environment |= {"ENDS": "", "CODE": "0", "WAITS": "", "WAITING": WAITING}
    environment |= {name.upper(): str(value) for name, value in options.items()}
    return subprocess.Popen(
        command,
        cwd=place,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a key at a terminal reaches all of them
        start_new_session=True,
        # of tests in the background it is ignored, and bash cannot trap it then
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def run(place: Path, *arguments: str, **options) -> tuple[int, str]:
    with start(place, *arguments, **options) as process:
        out = process.communicate()[0]
    return process.returncode, out


def stopped(process: subprocess.Popen, line: str, how) -> str:
    """What a process prints that is stopped once it has printed such a line."""
    shown = []
    with process:
        for each in process.stdout:
            shown.append(each)
            if how and re.search(line, each):
                how, do = None, how
                do()
    return "".join(shown)


def begun(out: str) -> list[str]:
    """The commands that were begun."""
    return re.findall(r"^python -m \S+ (\w+) ", out, re.M)


def made(place: Path) -> dict[str, int]:
    files = [path for path in (place / "run").rglob("*") if path.is_file()]
    return {str(path.relative_to(place)): path.stat().st_mtime_ns for path in files}


def test_a_run_that_is_stopped_and_resumed(place):
    first = start(place, "--updates", "20")
    out = stopped(first, "num_updates=1,", first.terminate)
    assert first.returncode == 75, out
    assert begun(out) == ["split_text", "text", "train"]
    assert_names(out, "checkpoint", "the same command resumes")
    code, out = run(place, "--updates", "20", played=f"text {USES}")
    assert code == 0, out
    (resumed,) = lines_naming(out, "resumed at update")
    assert int(re.findall(r"update (\d+)", resumed)[0]) >= 1
    assert len(lines_naming(out, "already complete", "nothing to do")) == 1
    names = ("score.jsonl", "rules.md", "generated.txt", "curves.md")
    before = made(place)
    assert {f"run/{name}" for name in names} < {*before}
    assert not [name for name in before if name.endswith(".part")]
    for name in ("valid", "test"):
        found = (place / f"run/text/{name}.txt").read_text()
        assert " THE " in found.upper() and any(x in found for x in ("EHT", "eht"))
    code, out = run(place, "--updates", "20", played=f"text train {USES}")
    assert (code, begun(out)[-1]) == (0, "train"), out
    (place / "texts/new.txt").write_text("one more")
    code, out = run(place, "--updates", "20")
    assert (code, begun(out)) == (2, ["split_text"])
    assert_names(out, "error", "--dest", "documents")
    assert made(place) == before


def test_what_uses_the_model_is_done_once_for_each(place):
    played = f"text train {USES}"
    best = place / "run/checkpoints/checkpoint_best.pt"
    best.parent.mkdir(parents=True)
    (place / "run/text.tmp-1").mkdir()
    for name in (best, best.with_name("train.log")):
        name.write_text("")
    code, out = run(place, played=played, ends="generate", code=3)
    assert (code, begun(out)[-1]) == (3, "generate")
    assert (place / "run/rules.md").exists()
    assert not (place / "run/generated.txt").exists()
    code, out = run(place, played=played)
    assert (code, begun(out)[3:]) == (0, ["generate", "analyse"])
    # the played command's first word, as a model would write the file
    assert (place / "run/generated.txt").read_text().startswith("-m\n")
    best.touch()
    code, out = run(place, played=played)
    assert (code, begun(out)[3:]) == (0, ["score", "analyse", "generate"])
    code, out = run(place, played=played, ends="train", code=75)
    assert (code, begun(out)[-1]) == (75, "train")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_of_any_step(place, number):
    process = start(place, played="text", waits="text")

    def stop():
        # a terminal's key, or its end, comes to all of the group
        to_all = number != signal.SIGTERM
        (os.killpg if to_all else os.kill)(process.pid, number)

    out = stopped(process, "^it waits$", stop)
    assert process.returncode == 75, out
    assert_names(out, "ended by SIGTERM", "the same command resumes")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_nohup_outlives_its_terminal(place):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(place, played=f"text train {USES}", ends="train", code=9)
    finally:
        signal.signal(signal.SIGHUP, before)
    stopped(process, "^--vocab-at-most$", lambda: process.send_signal(signal.SIGHUP))
    assert process.returncode == 9


def test_dry_run_writes_nothing(place):
    code, out = run(place, "--dry-run")
    assert code == 0 and not (place / "run").exists()
    assert_names(out, "plan", "vocabulary", "T2", "3 documents", "by paragraph")
    steps = "split_text text train score analyse generate analyse".split()
    assert begun(out) == steps


@pytest.mark.slow
def test_a_whole_run(place):
    """Every command in truth."""
    code, out = run(place, "--updates", "60", played="")
    assert code == 0, out
    assert "| bigram |" in out and "| model |" in out
    assert (place / "run/curves.png").read_bytes().startswith(b"\x89PNG")
    assert (place / "run/generated.txt").read_text() in out
    code, out = run(place, "--updates", "60", played="")
    assert (code, begun(out)[-1]) == (0, "train")

"""Own text in one command: what it does, resumes and refuses."""

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from data_prep.__main__ import main as data_prep_command
from fairseq_transnormer.generation import command_line as generate_command
from fairseq_transnormer.own_text import command_line, pipeline, stages
from fairseq_transnormer.own_text.baselines import trivial_rules
from fairseq_transnormer.own_text.errors import OwnTextError
from fairseq_transnormer.own_text.plan import plan_for
from fairseq_transnormer.own_text.stages import Run
from fairseq_transnormer.training import launch
from fairseq_transnormer.training.config import get
from tests.inference.models import sentences
from tests.messages import assert_names, command_refuses, lines_naming, refuses
from tests.paths import ROOT

real_run = subprocess.run
# updates of a played training -> its exit code
ENDED = {13: 75, 14: -9, 15: 3}
LANGUAGES = {"en": str, "caps": str.upper, "back": lambda line: line[::-1]}


@pytest.fixture
def folder(tmp_path):
    """One file a language."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, written in LANGUAGES.items():
        lines = [written(line.replace("€", ".")) for line in sentences(120)]
        text = "\n\n".join(f"{line} {i}" for i, line in enumerate(lines))
        (folder / f"{name}.txt").write_text(text + "\n")
    return folder


@pytest.fixture
def run(capfd, tmp_path):
    """The command; exit code, stdout, stderr."""

    def run(*arguments):
        capfd.readouterr()
        words = [str(each) for each in arguments]
        code = command_line.main([*words, "--dest", str(tmp_path / "run")])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def quick(monkeypatch):
    """Text is divided and encoded; training and what uses the model are played."""
    trainings = []

    def train(command, environment, log, updates):
        trainings.append(command)
        if updates in ENDED:
            return ENDED[updates]
        words = dict(zip(command, command[1:], strict=False))
        save_dir = Path(words["--save-dir"])
        save_dir.mkdir(exist_ok=True)
        (save_dir / "checkpoint_best.pt").write_text(str(updates))
        log.write_text("log")
        return 0

    def in_process(command, capture_output=False, **_):
        """A process of ``data_prep``, which would import fairseq each time."""
        assert command[1:3] == ["-m", "data_prep"]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as captured:
            if capture_output:
                captured.enter_context(contextlib.redirect_stdout(out))
                captured.enter_context(contextlib.redirect_stderr(err))
            code = data_prep_command(command[3:])
        return subprocess.CompletedProcess(
            command, code, out.getvalue(), err.getvalue()
        )

    def output(command, environment):
        if "score" in command:
            names = ("tokens", "words", "bytes", "perplexity", "bits_per_byte")
            return json.dumps({"context": "x"} | dict.fromkeys(names, 2)) + "\n"
        if "generate" in command:
            given = [word.partition("=") for word in command]
            prompts = [prompt for option, _, prompt in given if option == "--prompt"]
            rows = [json.dumps({"prompt": p, "text": f"{p} ..."}) for p in prompts]
            return "\n".join(rows)
        if "run_curves" in command:
            Path(command[-1]).write_text("curves")
            return ""
        raise AssertionError(command)

    monkeypatch.setattr(pipeline, "run_training", train)
    monkeypatch.setattr(stages, "output_of", output)
    monkeypatch.setattr(stages.subprocess, "run", in_process)
    return trainings


def test_every_stage_is_done_once(folder, run, quick, tmp_path):
    code, out, err = run(folder, "--updates", 13)
    assert code == 75 and len(quick) == 1
    again = f"own_text {folder} --updates 13 --dest {tmp_path / 'run'}"
    assert err.strip().endswith(f"to resume: python -m fairseq_transnormer {again}")
    code, out, _ = run(folder, "--updates", 13)
    assert code == 75 and len(quick) == 2
    assert [line.split(":")[0] for line in lines_naming(out, "done already")] == [
        "== split",
        "== encode",
    ]
    code, out, _ = run(folder, "--updates", 20)
    assert code == 0 and len(quick) == 3
    made = {path.name for path in (tmp_path / "run").iterdir()}
    assert made == {
        *("own_text.json", "text", "data-bin", "checkpoints", "output.log"),
        *("scores.json", "generated.txt", "curves.png"),
    }
    for rule in ("xz", "unigram", "bigram", "T2"):
        assert lines_naming(out, rule)
    prompts = (tmp_path / "run/generated.txt").read_text()
    assert prompts.count("prompt: ") >= 2
    for count, arguments in ((3, []), (4, ["--updates", 30])):
        code, out, _ = run(folder, *arguments)
        assert code == 0 and len(quick) == count
        assert len(lines_naming(out, "done already")) == (2 if arguments else 6)


@pytest.mark.parametrize(("updates", "by"), [(14, "signal 9"), (15, "exit code 3")])
def test_a_training_that_dies_says_by_what(folder, run, quick, tmp_path, updates, by):
    code, _, err = run(folder, "--updates", updates)
    assert code == 1
    log, command = tmp_path / "run" / "output.log", f"own_text {folder} --updates"
    assert_names(err, by, log, f"{command} {updates}")


def test_another_command_that_is_killed_says_so():
    kills = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    for run_it in (stages.run, stages.output_of):
        with refuses(OwnTextError, "signal 9", "resumes") as caught:
            run_it(kills, {})
        assert caught.value.code == 1


def test_a_signal_ends_the_command_of_a_stage(
    folder, run, quick, tmp_path, monkeypatch
):
    number = tmp_path / "pid"
    waits = f"import os, time; open({str(number)!r}, 'w').write(str(os.getpid())); "
    command = ["python", "-c", f"{waits}time.sleep(10)"]
    played = stages.subprocess.run

    def encode(given, **options):
        real = given[1] == "-c"
        return (real_run if real else played)(given, **options)

    def stop():
        while not (number.exists() and number.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(stages.subprocess, "run", encode)
    monkeypatch.setattr(stages, "encoding", lambda *_: command)
    # what would end these tests
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=stop).start()
    try:
        code, _, err = run(folder)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 75
    assert_names(err, "asked to stop", "same command resumes")
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def test_a_signal_is_no_mistake_in_what_is_being_read(folder, run, tmp_path):
    """Reading the record stops at a FIFO; what is wrong in it is told by name."""
    (tmp_path / "run").mkdir()
    record = tmp_path / "run" / "own_text.json"
    os.mkfifo(record)

    def stop():
        with open(record, "w"):  # waits for the reader
            # a signal may come before the reader waits, and interrupt nothing
            while not ended.wait(0.05):
                signal.pthread_kill(main, signal.SIGTERM)

    ended, main = threading.Event(), threading.main_thread().ident
    # what would end these tests
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        code, _, err = run(folder)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert code == 75
    assert_names(err, "asked to stop", "same command resumes")


def test_texts_and_names_that_the_terminal_lacks(folder, run, quick, monkeypatch):
    for path in folder.glob("*.txt"):
        path.write_text(path.read_text().replace(" ", " ภา "))
    os.rename(folder / "caps.txt", os.fsencode(folder / "1. ") + b"\xdcbung")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    with contextlib.redirect_stdout(terminal):
        assert run(folder)[0] == 0
        terminal.flush()
    shown = terminal.buffer.getvalue().decode()
    assert_names(shown, "ภา", "left out: 1 *. ?bung")


def test_every_language_is_in_every_split(folder, run, quick, tmp_path):
    assert run(folder)[0] == 0
    for name in ("valid", "test"):
        found = (tmp_path / f"run/text/{name}.txt").read_text()
        assert " THE " in found.upper() and any(x in found for x in ("EHT", "eht"))
        assert found.upper() != found != found.lower()


def test_another_folder_and_other_values_are_refused(folder, run, quick, tmp_path):
    assert run(folder)[0] == 0
    before = (tmp_path / "run/own_text.json").read_text()
    other = tmp_path / "others"
    other.mkdir()
    (other / "a.txt").write_text("some other text\n\n" * 400)
    for arguments, parts in (
        ([other], ["--dest", "texts", "others"]),
        ([folder, "--width", 128], ["--dest", "width", 64, 128]),
        ([folder, "--suffixes", ".md"], ["--dest", "dividing", ".md"]),
    ):
        code, out, err = run(*arguments)
        assert code == 2 and err.count("\n") == 1
        assert_names(err, "error", *parts)
    assert (tmp_path / "run/own_text.json").read_text() == before


def test_changed_texts_are_refused(folder, run, quick):
    assert run(folder, "--updates", 13)[0] == 75
    (folder / "picture.png").write_bytes(b"\x89PNG")
    assert run(folder, "--updates", 13)[0] == 75
    (folder / "new.txt").write_text("one more")
    code, _, err = run(folder, "--updates", 13)
    assert code == 2 and err.count("\n") == 1
    assert_names(err, folder, "other texts", "--dest")


def test_dry_run_writes_nothing(folder, run, tmp_path):
    code, out, _ = run(folder, "--dry-run")
    assert code == 0 and not (tmp_path / "run").exists()
    assert_names(out, "plan", "vocabulary", "T2", "3 documents", "by paragraph")
    commands = [line for line in out.splitlines() if line.startswith("python -m ")]
    assert len(commands) == 6


def test_the_training_command_is_one(folder, tmp_path, capsys):
    """What is composed."""
    counts = {"characters": 9 * 10**5, "different_characters": 60}
    plan = plan_for({**counts, "frequent_characters": 50}, False)
    run = Run(tmp_path)
    run.data.mkdir()
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        (run.data / name).write_text("")
    command = stages.training(run, plan, 0, None)
    assert command[:4] == ["python", "-m", "fairseq_transnormer", "train"]
    assert launch.main([*command[4:], "--dry-run"]) == 0
    composed = yaml.safe_load(capsys.readouterr().out)
    half = plan.layers // 2
    for key, value in {
        "model._name": "transnormer_t2",
        "model.attention_types": f"diag*{half},norm*{half}",
        "model.embed_dim": plan.width,
        "optimization.max_update": plan.updates,
        "dataset.batch_size": plan.batch_size,
        "checkpoint.patience": 4,
        "common.log_format": "json",
        "checkpoint.save_dir": str(run.checkpoints),
        "common.cpu": True,
    }.items():
        assert get(composed, key) == value, key


def test_trivial_rules(tmp_path, folder):
    """xz of the test text, with and without the train text in front."""
    from data_prep.own_text import text

    for name, count in (("train", 300), ("test", 40)):
        lines = [f"{line} {i % 7}" for i, line in enumerate(sentences(count))]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    words = ["--dest", tmp_path / "bin", "--tokenizer", "word"]
    words += ["--train", tmp_path / "train.txt", "--valid", tmp_path / "test.txt"]
    words += ["--test", tmp_path / "test.txt"]
    assert text.main([str(word) for word in words]) == 0
    found = trivial_rules(tmp_path, tmp_path / "bin")
    packed = subprocess.run(
        ["xz", "-9e", "--stdout", tmp_path / "test.txt"], capture_output=True
    )
    size = (tmp_path / "test.txt").stat().st_size
    if packed.returncode == 0:
        bits = 8 * len(packed.stdout) / size
        assert found["xz"]["bits_per_byte"] == pytest.approx(bits, abs=0.1)
    # the lines of test stand in train
    assert found["xz after train"]["bits_per_byte"] < 0.3 * bits
    assert found["bigram"]["perplexity"] < found["unigram"]["perplexity"]
    assert found["bigram"]["bits_per_byte"] < found["unigram"]["bits_per_byte"] < 8


def test_openings(tmp_path):
    file = tmp_path / "test.txt"
    lines = [
        f"{i} " + "one two three four five six seven eight nine ten eleven"
        for i in range(9)
    ]
    file.write_text("\n\n".join([*lines, "short line"]))
    found = stages.openings(file, 3)
    assert found == [f"{i} one two three four" for i in (0, 3, 6)]
    file.write_text("这是一个没有空格的很长的句子" * 5)
    assert stages.openings(file) == [file.read_text()[:20]]
    file.write_text("a\n")
    assert stages.openings(file) == [""]
    file.write_text("Shall I compare thee\n\nto a summer's day\n")
    assert stages.openings(file) == ["Shall I", "to a"]
    # a title's underline, in reStructuredText
    file.write_text("-" * 60)
    prompts = stages.openings(file)
    assert prompts == ["-" * 20]
    _, *words = stages.generating(Run(tmp_path), prompts)[3:]
    assert generate_command._parser().parse_args(words).prompt == prompts


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029", "\x1c"])
def test_objects_whose_texts_have_breaks_of_their_own(character):
    objects = [{"text": f"a{character}b"}, {"text": "c"}]
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)
    assert stages.json_lines(lines) == objects


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["no such folder", "or a file"]),
        ({}, ["no *.txt, *.md, *.rst file", "empty"]),
        ({"a.png": b"\x89PNG"}, ["1 *.png"]),
        ({"a.txt": b"\0\0\0 text"}, ["a.txt", "binary"]),
        ({"a.txt": b"\xff\xfea"}, ["a.txt", "not UTF-8"]),
        ({"a.txt": b"one\n\ntwo\n\nthree\n\nfour\n"}, ["characters", "2,000 or more"]),
        ({"a.txt": b"one\n"}, ["different paragraphs", "3 splits"]),
    ],
)
def test_folders_that_do_not_do(run, quick, tmp_path, content, parts):
    folder = tmp_path / "texts"
    if content is not None:
        folder.mkdir()
        for name, written in content.items():
            (folder / name).write_bytes(written)
    code, out, err = run(folder)
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    assert_names(err, "own_text: error", *parts)
    # no options of another command
    assert not any(word in err for word in ("--input", "--train", "split_text"))
    assert not (tmp_path / "run").exists()


def test_a_file_is_a_text(run, quick, folder, tmp_path):
    code, out, err = run(folder / "en.txt", "--dry-run")
    assert code == 0, err
    assert_names(out, "en.txt", "1 *.txt")


def test_a_place_that_cannot_be_made(folder, capsys):
    """Not even root makes folders in /proc."""
    words = [folder, "--dest", "/proc/mine"]
    parts = ("--dest", "/proc/mine", "cannot be written", "allowed")
    command_refuses(command_line.main, words, capsys, *parts)


def test_places_that_do_not_do(folder, capsys, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for dest, parts in (
        (folder, ["in one another"]),
        (folder / "run", ["in one another"]),
        (tmp_path, ["in one another"]),
        (foreign, ["foreign", "no run of own_text"]),
        (foreign / "thesis.txt", ["thesis.txt", "no run of own_text"]),
        (tmp_path / "${run}", ["${", "Hydra"]),
    ):
        words = [folder, "--dest", dest]
        command_refuses(command_line.main, words, capsys, "--dest", *parts, alone=True)
    assert (foreign / "thesis.txt").read_text() == "years of work"
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--gpus", "99"], ["--gpus 99", "0 to"]),
        (["--width", "100"], ["width=100", "multiples of 64"]),
        (["--updates", "0"], ["--updates", "'0'", "from 1"]),
        (["--precision", "int8"], ["--precision", "bf16"]),
    ],
)
def test_wrong_options(folder, capsys, tmp_path, arguments, parts):
    words = [folder, "--dest", tmp_path / "run", *arguments]
    command_refuses(command_line.main, words, capsys, *parts)
    assert not (tmp_path / "run").exists()


def test_missing_packages_are_named_first(folder, run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "sentencepiece" else find(name, *more),
    )
    code, out, err = run(folder)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert_names(err, "sentencepiece", "pip install", "scripts/install.sh")


@pytest.mark.slow
def test_a_whole_run_and_its_resumption(folder, tmp_path):
    """Every command in truth, ended in the middle of the training and resumed."""
    dest = tmp_path / "run"
    command = [sys.executable, "-m", "fairseq_transnormer", "own_text", folder]
    command += ["--dest", dest, "--gpus", "0", "--tokens-per-sample", "64"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start():
        return subprocess.Popen(
            [*map(str, command), "--updates", "60"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment, cwd=tmp_path,
        )  # fmt: skip

    with start() as first:
        for line in first.stdout:
            if "update 3 of" in line:
                first.terminate()
        assert first.wait() == 75
    with start() as second:
        out = second.communicate()[0]
        assert second.returncode == 0, out
    assert_names(out, "encode: done already")
    model = json.loads((dest / "scores.json").read_text())["model"]
    size = json.loads((dest / "data-bin/report.json").read_text())["dictionary_size"]
    assert model["perplexity"] < size / 2
    assert model["bytes"] == (dest / "text/test.txt").stat().st_size
    assert (dest / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (dest / "generated.txt").read_text().count("prompt: ") >= 2

"""A training's progress in a terminal and in a log."""

import io
import json
import os
import select
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from fairseq_transnormer.own_text.progress import Progress, run_training
from tests.messages import assert_names


def record(kind: str, **values) -> str:
    shown = json.dumps({name: str(value) for name, value in values.items()})
    return f"2026-01-01 00:00:00 | INFO | {kind} | {shown}\n"


LOG = [
    "2026-01-01 00:00:00 | INFO | fairseq.trainer | begin\n",
    record("train_inner", epoch=1, num_updates=10, loss=9.5, wps=4321.5),
    record("valid", valid_num_updates=10, valid_loss=8.25, valid_ppl=304.4),
    record("train_inner", epoch=2, num_updates=20, loss=7.5, wps=4000),
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_in_a_log():
    stream = io.StringIO()
    progress = Progress(40, stream)
    for line in LOG:
        progress.read(line)
    progress.close()
    first, valid, last = stream.getvalue().splitlines()
    assert_names(first, "update 10 of 40", "9.5", "bits", "4,322 tokens/s")
    assert_names(valid, "update 10", "validation", "8.25", "304.4")
    assert_names(last, "update 20 of 40", "7.5", "min left")
    assert "\r" not in stream.getvalue()


def test_what_is_resumed_is_told():
    stream = io.StringIO()
    progress = Progress(40, stream)
    for text in (
        "INFO | resumed at update 78 from runs/x/checkpoint_last.pt",
        "WARNING | resuming with another schedule: lr_scheduler.warmup_updates: 53 "
        "before, now 20",
    ):
        level, said = text.split(" | ")
        progress.read(f"2026-01-01 00:00:00 | {level} | fairseq_transnormer | {said}\n")
    first, second = stream.getvalue().splitlines()
    assert first == "resumed at update 78"
    assert_names(second, "another schedule", "warmup_updates", 53, 20)


def test_a_bar_in_a_terminal():
    stream = Terminal()
    progress = Progress(40, stream)
    for line in LOG:
        progress.read(line)
    progress.close()
    shown = stream.getvalue()
    assert "\r" in shown
    assert_names(shown, "epoch 002", "20/40 updates, loss 7.500, 4,000 tokens/s")
    assert_names(shown, "8.25")


def test_a_bar_in_a_terminal_that_does_not_know_its_size():
    """As in a container; tqdm would show nothing."""
    shown, terminal = os.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        progress = Progress(40, stream)
        for line in LOG:
            progress.read(line)
        progress.close()
        stream.flush()
        # a terminal hands on what was written piece by piece
        written = b""
        while b"20/40" not in written:
            ready, _, _ = select.select([shown], [], [], 10)
            assert ready, written
            written += os.read(shown, 10_000)
    os.close(shown)


# stands for a training: logs, and ends after SIGTERM as the plugin makes it end
TRAINING = textwrap.dedent(
    """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print({line!r}, end="", flush=True)
    if sys.argv[1] == "wait":
        time.sleep(60)
    print("the reason", file=sys.stderr)
    sys.exit(int(sys.argv[1]))
    """
).format(line=LOG[1])


@pytest.mark.parametrize("code", [0, 3])
def test_the_log_has_everything(tmp_path, capfd, code):
    command = [sys.executable, "-c", TRAINING, str(code)]
    log = tmp_path / "train.log"
    log.write_text("of an earlier attempt\n")
    assert run_training(command, {}, log, 40) == code
    assert log.read_text() == f"of an earlier attempt\n{LOG[1]}the reason\n"
    shown = capfd.readouterr().err
    assert_names(shown, "update 10 of 40")
    assert ("the reason" in shown) == (code != 0)


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_training_after_a_checkpoint(tmp_path, received):
    log = tmp_path / "train.log"

    def stop():
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), received)

    # a shell's background jobs ignore SIGINT
    before = signal.signal(received, signal.default_int_handler)
    threading.Thread(target=stop).start()
    command = [sys.executable, "-c", TRAINING, "wait"]
    try:
        assert run_training(command, {}, log, 40) == 75
        assert signal.getsignal(received) is signal.default_int_handler
    finally:
        signal.signal(received, before)


def test_a_training_with_nohup_outlives_its_terminal(tmp_path):
    log = tmp_path / "train.log"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    waits = "import time; print('begun', flush=True); time.sleep(1)"

    def hang_up():
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGHUP)

    terminal = threading.Thread(target=hang_up)
    terminal.start()
    try:
        assert run_training([sys.executable, "-c", waits], {}, log, 40) == 0
    finally:
        terminal.join()
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_log_that_cannot_be_written_leaves_no_training(tmp_path):
    number = tmp_path / "pid"
    note = f"import os; open({str(number)!r}, 'w').write(str(os.getpid()))"
    command = [sys.executable, "-c", f"{note}\n{TRAINING}", "wait"]
    with pytest.raises(OSError, match="No space left"):
        run_training(command, {}, Path("/dev/full"), 40)
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)

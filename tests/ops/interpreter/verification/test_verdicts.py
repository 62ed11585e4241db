"""What trials found is kept: in files, for processes, threads and modes of torch."""

import json
import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.verification import records, verdicts

from .launches import (
    X,
    encoded,
    next_process,
    norm,
    one_percent,
    told,
    verdict_files,
)


def test_a_good_kernel_is_tried_once(launches):
    random = torch.get_rng_state()
    result, warned = told(norm)
    assert warned == [] and len(launches) > 3
    torch.testing.assert_close(result, ops.rms_norm(X, backend="torch"))
    assert torch.equal(torch.get_rng_state(), random)
    assert json.loads(verdict_files()[0].read_text())["reason"] is None
    for remembered in (lambda: None, next_process):
        remembered()
        launches.clear()
        norm()
        assert launches == ["norm_kernel"]
    # another width is another kernel
    norm(X[..., :40].contiguous())
    assert "norm_backward_kernel" in launches and len(verdict_files()) == 2


def test_the_default_dtype_is_the_users(launches):
    torch.set_default_dtype(torch.float64)
    try:
        assert told(norm)[1] == [] and told(encoded)[1] == []
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("Failed to find C compiler"),
        OSError("no space left on device"),
    ],
)
def test_what_says_nothing_of_a_kernel_is_no_verdict(error, launches):
    def change(name, x):
        raise error

    launches.change = change
    assert len(told(norm)[1]) == 1 and verdict_files() == []


def test_a_user_without_a_home(launches, monkeypatch, tmp_path):
    monkeypatch.delenv(records.FOLDER_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert told(norm)[1] == [] and list(tmp_path.iterdir()) == []


def test_a_fork_while_another_thread_tries(launches):
    with verdicts._lock:
        child = os.fork()
        if child == 0:
            norm()
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert status == 0


def test_an_interrupt_waits_for_the_trial(launches):
    child = os.fork()
    if child == 0:

        def impatient(name, x):
            if threading.current_thread() is not threading.main_thread():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.02)

        # a shell starts background jobs with SIGINT ignored, and they hand that down
        signal.signal(signal.SIGINT, signal.default_int_handler)
        launches.change = impatient
        try:
            norm()
        except KeyboardInterrupt:
            os._exit(40 + threading.active_count())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 41


def out_of_memory(name, x):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_out_of_memory_is_no_verdict(launches):
    launches.change = out_of_memory
    result, (message,) = told(norm)
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    assert "memory" in message and verdict_files() == []
    next_process()
    launches.change = None
    assert told(norm)[1] == []


def test_a_kernel_that_kills_its_process_is_avoided_by_the_next(launches):
    child = os.fork()
    if child == 0:
        launches.change = lambda name, x: os.kill(os.getpid(), signal.SIGKILL)
        norm()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for _ in range(2):
        next_process()
        result, (message,) = told(norm)
        assert "rms_norm" in message and "killed" in message and launches == []
        assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    assert list(records.folder().glob("*.running")) == []


def _race(start, results):
    backend.INTERPRETER_IS_A_DEVICE = True
    start.wait()
    results.put(told(norm)[1])


def test_processes_that_race_for_the_files():
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.Queue()
    processes = [context.Process(target=_race, args=(start, results)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    assert [results.get(timeout=60) for _ in processes] == [[]] * 4
    for process in processes:
        process.join()
    (path,) = records.folder().iterdir()
    assert records.read(path).reason is None


@pytest.mark.parametrize("folder", ["/proc/nowhere", "a file"])
def test_a_folder_that_cannot_be_written(folder, launches, monkeypatch, tmp_path):
    if folder == "a file":
        (tmp_path / "file").touch()
        folder = str(tmp_path / "file")
    monkeypatch.setenv(records.FOLDER_VARIABLE, folder)
    assert told(norm)[1] == []
    launches.clear()
    norm()
    assert launches == ["norm_kernel"]


@pytest.mark.parametrize("content", ["", '{"rea', "[]", '{"reason": 3}', "[" * 100_000])
def test_a_damaged_verdict_is_found_out_again(content, launches):
    norm()
    verdict_files()[0].write_text(content)
    next_process()
    launches.clear()
    norm()
    assert len(launches) > 1
    assert records.read(verdict_files()[0]).reason is None


def test_verdicts_hold_for_their_sources_and_versions(monkeypatch, device):
    paths = {records.path_of("op", device)}
    for field in ("torch", "triton", "sources", "device"):
        changed = records.environment(device) | {field: "another"}
        with monkeypatch.context() as patch:
            patch.setattr(records, "environment", lambda device, c=changed: c)
            paths.add(records.path_of("op", device))
    assert len(paths) == 5


def no_saving(tensor):
    raise RuntimeError("a hook of the user's")


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "hooks": lambda: torch.autograd.graph.saved_tensors_hooks(no_saving, lambda x: x),
    "fake tensors": FakeTensorMode,
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_first_use_in_any_mode(context, launches):
    with CONTEXTS[context]():
        x = torch.ones(3, 5, 48)
        _, warned = told(lambda: norm(x))
    assert warned == [] and "norm_backward_kernel" in launches
    assert len(verdict_files()) == 1


def test_deterministic_algorithms_stay_as_the_user_has_them(launches):
    torch.use_deterministic_algorithms(True)
    try:
        assert told(norm)[1] == []
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("change", "dynamic"), [(None, True), (one_percent, None)])
def test_a_first_use_while_torch_compiles(change, dynamic, launches):
    launches.change = change
    torch._dynamo.reset()
    compiled = torch.compile(norm, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    x = X.clone().requires_grad_()
    result, warned = told(lambda: compiled(x))
    assert len(warned) == (change is not None)
    torch.testing.assert_close(result, ops.rms_norm(X, backend="torch"))
    result.sum().backward()


def test_nothing_is_tried_in_a_backward_pass(launches):
    """Its thread would have to wait for itself."""

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return norm(grad)

    x = X.clone().requires_grad_()
    _, warned = told(lambda: Late.apply(x).backward(X))
    assert len(warned) == 1 and launches == [] and verdict_files() == []
    torch.testing.assert_close(x.grad, ops.rms_norm(X, backend="torch"))
    # no verdict: the next call outside is tried
    assert told(norm)[1] == [] and launches


def test_threads_that_race_try_once(launches, device):
    """They ask only: the interpreter itself is for one thread."""
    options = ("rms_norm", torch.float32, device, (("width", 48), ("aligned", True)))
    once = []
    for count in (1, 4):
        next_process()
        for path in verdict_files():
            path.unlink()
        launches.clear()
        calls = [
            threading.Thread(target=verdicts.why_kernels_are_avoided, args=options)
            for _ in range(count)
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        once.append(list(launches))
    assert once[0] == once[1] != []

"""What ``auto`` takes: by a file of verdicts, which a child writes where they lack."""

import json
import multiprocessing
import os
import signal
from subprocess import CompletedProcess

import pytest
import torch

from fairseq_transnormer import ops, verify
from fairseq_transnormer.__main__ import main
from fairseq_transnormer.ops import verdicts
from fairseq_transnormer.ops.verdicts import Configuration, Verdict

from .launches import X, linear, next_process, norm, one_percent, told, written

WORDS = "rms_norm float32 width=48 aligned=True"
PASSED = Verdict(None, 0.5, 0.1)


def test_a_good_kernel_is_tried_once(launches, children, caplog, device):
    random = torch.get_rng_state()
    result, warned = told(norm)
    assert warned == [] and "norm_backward_kernel" in launches
    assert "verify" in caplog.text
    torch.testing.assert_close(result, ops.rms_norm(X, backend="torch"))
    assert torch.equal(torch.get_rng_state(), random)
    # unaligned rows, too
    assert len(written(device)) == 2 and written(device)[WORDS].reason is None
    for remembered in (lambda: None, next_process):
        remembered()
        launches.clear()
        assert norm() is not None and norm(torch.ones(3, 49)[:, 1:]) is not None
        assert launches == ["norm_kernel"] * 2 and len(children) == 1
    # another width is another kernel
    norm(X[..., :40].contiguous())
    assert len(children) == 2 and len(written(device)) == 4


def test_a_broken_kernel_is_left_to_torch(launches, children):
    launches.change = one_percent
    result, (message,) = told(norm)
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    for part in (WORDS, "result 0 is wrong", "fairseq_transnormer verify --again"):
        assert part in message
    # said once, also in the next process, which reads the file
    assert told(norm)[1] == []
    next_process()
    assert told(norm)[1] == [message] and len(children) == 1


def test_out_of_memory_is_no_verdict(launches, children, device):
    def out_of_memory(name, x):
        raise torch.OutOfMemoryError("CUDA out of memory")

    launches.change = out_of_memory
    result, (message,) = told(norm)
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    assert WORDS in message and written(device) == {}
    # in this process, nothing is tried again
    told(lambda: norm(torch.ones(3, 49)[:, 1:]))
    assert len(children) == 1
    next_process()
    launches.change = None
    assert told(norm)[1] == []


def test_a_child_that_fails_is_named(children, monkeypatch):
    failed = CompletedProcess([], 2, stderr="a warning\nno kernel can run on cpu\n")
    monkeypatch.setattr(verdicts.subprocess, "run", lambda *_, **__: failed)
    result, (message,) = told(norm)
    assert "no kernel can run on cpu" in message and WORDS in message
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))


def test_a_kernel_that_kills_its_process_is_avoided(
    launches, children, monkeypatch, device
):
    def forks(count):
        context = multiprocessing.get_context("fork")
        return verify.ProcessPoolExecutor(count, mp_context=context)

    monkeypatch.setattr(verify, "_processes", forks)
    launches.change = lambda name, x: os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        next_process()
        result, (message,) = told(norm)
        assert WORDS in message and "crashed" in message
        assert torch.equal(result, ops.rms_norm(X, backend="torch"))
        assert len(children) == 1
    launches.change = None
    assert main(["verify", "--device", "cpu", "--again", "--configuration", WORDS]) == 0
    next_process()
    assert told(norm)[1] == []


@pytest.mark.parametrize("folder", ["/proc/nowhere", "a file", "no home"])
def test_a_folder_that_cannot_be_written(folder, children, monkeypatch, tmp_path):
    if folder == "no home":
        monkeypatch.delenv(verdicts.FOLDER_VARIABLE)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        monkeypatch.chdir(tmp_path)
    else:
        (tmp_path / "a file").touch()
        monkeypatch.setenv(verdicts.FOLDER_VARIABLE, str(tmp_path / folder))
    before = list(tmp_path.iterdir())
    result, (message,) = told(norm)
    assert WORDS in message and children == []
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    # the table can be had all the same
    assert main(["verify", "--device", "cpu", "--configuration", WORDS]) == 0
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", ["", '{"verdicts": {"rms_n', "[]"])
def test_a_damaged_file_is_as_none(content, children, device):
    path = verdicts.path_of(device)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert told(norm)[1] == [] and len(children) == 1
    assert written(device)[WORDS].reason is None


def test_verdicts_hold_for_their_sources_and_versions(monkeypatch, device):
    paths = {verdicts.path_of(device)}
    for field in ("device", "capability", "torch", "triton", "sources"):
        changed = verdicts.environment(device) | {field: "another"}
        with monkeypatch.context() as patch:
            patch.setattr(verdicts, "environment", lambda device, c=changed: c)
            paths.add(verdicts.path_of(device))
    assert len(paths) == 6


def test_verdicts_outlive_what_is_no_kernels_code(monkeypatch, tmp_path, device):
    monkeypatch.setattr(verdicts, "_OPS", tmp_path)
    paths = []
    for doc, text in ("One.", "One."), ("Two.\n\nLines.", "One."), ("One.", "Two."):
        (tmp_path / "op.py").write_text(f'"""{doc}"""\nX = """{text}"""\n')
        for other in ("lrpe.py", "linear_attention/torch_impl.py"):
            (tmp_path / other).parent.mkdir(exist_ok=True)
            (tmp_path / other).write_text(f"X = {doc!r}\n")
        verdicts.environment.cache_clear()
        paths.append(verdicts.path_of(device))
    verdicts.environment.cache_clear()
    assert paths[0] == paths[1] != paths[2]


def test_measured_verdicts_come_with_the_package(
    launches, children, monkeypatch, tmp_path, device
):
    path = verdicts.path_of(device)
    measured = tmp_path / "ops" / "measured" / path.name
    measured.parent.mkdir(parents=True)
    content = {"environment": verdicts.environment(device)}
    content["verdicts"] = {WORDS: PASSED._asdict()}
    measured.write_text(json.dumps(content))
    monkeypatch.setattr(verdicts, "_OPS", tmp_path / "ops")
    assert told(norm)[1] == [] and launches == ["norm_kernel"] and children == []
    # what the user's machine found counts for more
    with verdicts.lock(device):
        verdicts.add(device, {WORDS: Verdict("wrong here", None, 0.1)})
    next_process()
    assert "wrong here" in told(norm)[1][0]


def _race(start, results, launches):
    start.wait()
    warned = told(norm)[1]
    results.put((warned, "norm_backward_kernel" in launches))


def test_of_processes_that_race_one_tries(launches, children, device):
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.Queue()
    arguments = start, results, launches
    processes = [context.Process(target=_race, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    found = [results.get(timeout=100) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(found) == [([], False), ([], False), ([], True)]
    assert len(written(device)) == 2


@pytest.mark.parametrize(("change", "dynamic"), [(None, True), (one_percent, None)])
def test_a_first_use_while_torch_compiles(change, dynamic, launches, children):
    launches.change = change
    torch._dynamo.reset()
    compiled = torch.compile(norm, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    x = X.clone().requires_grad_()
    result, warned = told(lambda: compiled(x))
    assert len(warned) == (change is not None) and len(children) == 1
    torch.testing.assert_close(result, ops.rms_norm(X, backend="torch"))
    result.sum().backward()


def test_words_name_a_configuration(device):
    with verdicts.collected() as found:
        linear()
        norm(X.half())
        ops.dropout_add_norm(X, X, dropout_p=0.5)
    assert " form=one segment/one segment " in found[0].in_words() + " "
    for each in found:
        assert Configuration.from_words(each.in_words(), device) == each
    with pytest.raises(ValueError, match="OP DTYPE"):
        Configuration.from_words("rms_norm width=48", device)
    flags = [each.in_words() for each in found[0].with_any_flags()]
    assert len(set(flags)) == 2**4 and found[0].in_words() in flags


@pytest.mark.slow
def test_a_child_in_a_process_of_its_own(monkeypatch, tmp_path, device):
    """Which finds the package where this process found it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(verdicts, "MOST_WORKERS", 1)
    assert told(norm)[1] == [] and len(written(device)) == 2

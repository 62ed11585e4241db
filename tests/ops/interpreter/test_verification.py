"""backend="auto" tries kernels before it takes them; here the interpreter is a device.

Kernels are broken on purpose behind their launch: what they wrote is changed.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_transnormer import ops, verify
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.triton_ops import (
    gated_silu,
    lrpe,
    partial_sums,
    residual,
    rms_norm,
)
from fairseq_transnormer.ops.triton_ops.block_attention import launch as block_attention
from fairseq_transnormer.ops.triton_ops.linear_attention import (
    bidirectional,
    causal,
    forms,
    options,
    step,
    sums,
)
from fairseq_transnormer.ops.verification import records, verdicts
from tests.paths import ROOT

LAUNCHING = (gated_silu, lrpe, partial_sums, residual, rms_norm, block_attention)
LAUNCHING += (bidirectional, causal, step, sums)


@pytest.fixture(autouse=True)
def device(monkeypatch, tmp_path):
    """The interpreter as a GPU with two multiprocessors; nothing has been tried."""
    monkeypatch.setattr(backend, "INTERPRETER_IS_A_DEVICE", True)
    set_multiprocessors(monkeypatch, 2)
    monkeypatch.setenv(records.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(ops.ENVIRONMENT_VARIABLE, raising=False)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    verdicts.forget()
    yield torch.device("cpu")
    verdicts.forget()
    forms._form.cache_clear()
    torch.set_float32_matmul_precision(before)


def set_multiprocessors(monkeypatch, count):
    for module in (forms, options):
        monkeypatch.setattr(module, "multiprocessors", lambda device: count)
    forms._form.cache_clear()


class Launches(list):
    """Names of the kernels that were launched; what ``change`` does to their results.

    change: (name of the kernel, tensor that it wrote into) -> None, or None.
    """

    def __init__(self, monkeypatch):
        super().__init__()
        self.change = None
        # names with what the kernels were compiled for
        self.compiled = set()
        for module in LAUNCHING:
            monkeypatch.setattr(module, "launch", self._instead_of(module.launch))

    def _instead_of(self, launch):
        def watched(kernel, grid, *arguments, **keywords):
            name = kernel.fn.__name__
            self.append(name)
            constants = {k: str(v) for k, v in keywords.items()}
            types = tuple(
                str(getattr(x, "dtype", type(x).__name__)) for x in flat(arguments)
            )
            self.compiled.add((name, types, tuple(sorted(constants.items()))))
            if self.change is None:
                return launch(kernel, grid, *arguments, **keywords)
            tensors = [x for x in flat(arguments) if isinstance(x, torch.Tensor)]
            before = [x.clone() for x in tensors]
            launch(kernel, grid, *arguments, **keywords)
            for x, old in zip(tensors, before, strict=True):
                if not torch.equal(x, old):
                    self.change(name, x)

        return watched


def flat(arguments):
    for x in arguments:
        if isinstance(x, tuple):
            yield from flat(x)
        else:
            yield x


@pytest.fixture
def launches(monkeypatch):
    return Launches(monkeypatch)


def next_process():
    """What a process that begins now remembers: nothing but the files."""
    verdicts.forget()


def told(call):
    """What a call returns, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(w.message) for w in caught if w.category is RuntimeWarning]


X = torch.randn(3, 5, 48, generator=torch.Generator().manual_seed(1))


def norm(x=X):
    return ops.rms_norm(x)


def verdict_files():
    return sorted(records.folder().glob("*.json"))


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


def one_percent(name, x):
    x.mul_(1.01)


def one_row(name, x):
    x.view(-1, x.shape[-1])[5].mul_(1.05)


def gradient_alone(name, x):
    if "backward" in name:
        x.mul_(1.01)


def last_row(name, x):
    x.view(-1, x.shape[-1])[-1] = 0


def nothing_written(name, x):
    # as what torch.empty gave
    x.view(-1, x.shape[-1])[-1] = torch.nan


def run_to_run(name, x, calls=[]):  # noqa: B006
    calls.append(name)
    x.mul_(1 + 1e-6 * len(calls))


def raising(name, x):
    raise RuntimeError("Triton Error [CUDA]: out of resource: shared memory")


@pytest.mark.parametrize(
    "change",
    [one_percent, one_row, gradient_alone, last_row, nothing_written, raising]
    + [run_to_run],
)
def test_a_broken_kernel_is_left_to_torch(change, launches):
    launches.change = change
    result, warned = told(norm)
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))
    (message,) = warned
    for word in ("rms_norm", "float32", "width=48"):
        assert word in message
    # said once, also in the next process, which reads the file
    launches.clear()
    assert told(norm)[1] == []
    next_process()
    assert told(norm)[1] == [message]
    assert launches == []


@pytest.mark.parametrize("broken", ["norm_kernel", "norm_backward_kernel"])
def test_what_is_left_unwritten_is_seen(broken, monkeypatch):
    """A row keeps what its memory held, forward or backward: NaN."""
    launch = rms_norm.launch

    def all_but_a_row(kernel, grid, *arguments, **keywords):
        results = arguments[1:2] if broken == "norm_kernel" else arguments[2:3]
        if kernel.fn.__name__ != broken:
            return launch(kernel, grid, *arguments, **keywords)
        before = [x.clone() for x in results]
        launch(kernel, grid, *arguments, **keywords)
        for x, old in zip(results, before, strict=True):
            x[0, 3] = old[0, 3]

    monkeypatch.setattr(rms_norm, "launch", all_but_a_row)
    result, (message,) = told(norm)
    assert "nan" in message
    assert torch.equal(result, ops.rms_norm(X, backend="torch"))


ATTENTION = torch.randn(1, 70, 2, 32, generator=torch.Generator().manual_seed(2))
TOKEN = ATTENTION[:, :1]


def linear(x=ATTENTION, **keywords):
    return ops.linear_attention(x, x, x, **{"causal": True} | keywords)


def block(x=ATTENTION, **keywords):
    return ops.block_attention(x, x, x, block_size=16, causal=True, **keywords)


def encoded():
    theta, v = torch.ones(16), torch.eye(32)[0]
    return ops.lrpe(ATTENTION, ATTENTION, theta, v, torch.arange(70))[0]


def after_a_state(op):
    with torch.no_grad():
        state = op(return_state=True, backend="torch")[1]
        return op(TOKEN, initial_state=state, return_state=True)[0]


def added():
    torch.manual_seed(1)
    return ops.add_and_norm(X, X, dropout_p=0.5)[1]


def glu():
    weight, bias = X.view(-1, 48)[:5], X[0, 0, :5]
    return ops.gated_linear_unit(
        X, weight, bias, weight, bias, weight.t().contiguous(), X[0, 0]
    )


def projected():
    weight = torch.eye(64)[:, :48].contiguous()
    theta, v = torch.ones(16), torch.eye(32)[0]
    return ops.encoded_projections(
        X, (weight,) * 3, (weight[:, 0],) * 3, theta, v, torch.arange(5), heads=2
    )[0]


# kernel, and where that is not enough its use -> a call that launches it, or whose
# gradient does
KERNELS = {
    "gate_kernel": lambda: ops.gated_silu(X, X),
    "gate_backward_kernel": lambda: ops.gated_silu(X, X),
    "norm_backward_kernel": norm,
    "residual_kernel": added,
    "residual_backward_kernel": added,
    "gate_kernel of halves": glu,
    "halves_backward_kernel": glu,
    "total_kernel": glu,
    "total_kernel of two": projected,
    "encode_kernel in place": projected,
    "encode_backward_kernel in place": projected,
    "encode_kernel": encoded,
    "encode_backward_kernel": encoded,
    "block_attention_forward": block,
    "block_attention_backward": block,
    "block_attention_step": lambda: after_a_state(block),
    "causal_forward_kernel": linear,
    "causal_backward_kernel": lambda: linear(
        ATTENTION.abs().requires_grad_(), normalize=True
    ),
    "segment_sums_kernel": lambda: linear(ATTENTION.repeat(1, 8, 1, 1)[:, :, :1]),
    "bidirectional_forward_kernel": lambda: linear(causal=False),
    "bidirectional_backward_kernel": lambda: linear(causal=False),
    "step_kernel": lambda: after_a_state(linear),
}


SLOW = {"segment_sums_kernel"}


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in KERNELS],
)
def test_every_kernel_is_tried(kernel, launches, monkeypatch):
    """One row of what it writes, wrong by a twentieth, and torch takes its op."""
    if kernel == "segment_sums_kernel":
        set_multiprocessors(monkeypatch, 108)

    broken = kernel.split()[0]

    def change(name, x):
        if name == broken:
            x.mul_(1.05) if x.dim() < 2 else x[-1].mul_(1.05)

    launches.change = change
    call = KERNELS[kernel]
    result, warned = told(call)
    assert len(warned) == 1 and broken in launches
    monkeypatch.setenv(ops.ENVIRONMENT_VARIABLE, "torch")
    torch.testing.assert_close(result, call())


def test_all_kernels_pass(launches):
    """The same calls with kernels as they are."""
    for kernel, call in KERNELS.items():
        if kernel not in SLOW:
            assert told(call)[1] == [], kernel


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in SLOW])
def test_what_is_launched_has_been_tried(kernel, launches, monkeypatch):
    """Constants, dtypes, and which tensors are left out."""
    call = KERNELS[kernel]
    told(call)
    tried = set(launches.compiled)
    launches.compiled.clear()
    monkeypatch.setattr(backend, "_why_kernels_are_avoided", lambda *arguments: None)
    result = call()
    if result.requires_grad:
        result.sum().backward()
    assert launches.compiled and launches.compiled <= tried


def test_gradients_of_a_kernel_that_is_left_to_torch_by_dtype(launches):
    """Averages are divided by float32 sums also where inputs are float16."""
    x = ATTENTION.abs().half().requires_grad_()
    result, warned = told(lambda: linear(x, normalize=True))
    assert warned == []
    tried = set(launches.compiled)
    launches.compiled.clear()
    result.float().sum().backward()
    assert launches.compiled <= tried


def from_token_256_on(name, x):
    if name == "bidirectional_forward_kernel" and x.dim() == 4 and x.shape[1] > 256:
        x[:, 256:].mul_(1.5)


def rows_without_a_token(name, x):
    if name == "block_attention_forward":
        # a query that sees no key gives zeros
        x[(x == 0).all(-1)] = torch.nan


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (from_token_256_on, lambda: linear(causal=False)),
        (
            rows_without_a_token,
            lambda: block(key_padding_mask=torch.arange(70)[None] > 60),
        ),
    ],
)
def test_faults_that_small_inputs_do_not_have(change, call, launches):
    launches.change = change
    assert len(told(call)[1]) == 1


@pytest.mark.parametrize("broken", ["scale", "seed", "neighbours"])
def test_dropout_that_is_none(broken, launches, monkeypatch):
    """Wrong factors, one mask for all seeds, four columns dropped together."""
    draw_seed = residual.draw_seed

    def change(name, x):
        # the factors themselves: 0 and 1 / (1 - p)
        if name != "residual_kernel" or x.dim() != 3 or len(x.unique()) != 2:
            return
        if broken == "scale":
            x.mul_(1.1)
        if broken == "neighbours":
            x.copy_(x[..., ::4].repeat_interleave(4, -1))

    launches.change = change
    if broken == "seed":
        monkeypatch.setattr(residual, "draw_seed", lambda: draw_seed() * 0 + 2**62)
    assert len(told(added)[1]) == 1


def drop_weights():
    return block(activation="relu", dropout_p=0.5)


@pytest.mark.parametrize("broken", ["scale", "seed", "heads", "backward"])
def test_dropout_of_weights_that_is_none(broken, launches, monkeypatch):
    """Besides: one mask for all heads, another one backwards."""
    draw_seed, launch = block_attention.draw_seed, block_attention.launch

    def change(name, x):
        # the factors themselves
        if name != "block_attention_forward" or len(x.unique()) != 2:
            return
        if broken == "scale":
            x.mul_(1.1)
        if broken == "heads":
            x.copy_(x[:, :, :1].expand_as(x))

    def other_seed_backwards(kernel, grid, *arguments, **keywords):
        if kernel.fn.__name__ == "block_attention_backward":
            arguments = [
                x + 1 if isinstance(x, int) and x >= 2**62 else x for x in arguments
            ]
        return launch(kernel, grid, *arguments, **keywords)

    launches.change = change
    if broken == "seed":
        monkeypatch.setattr(
            block_attention, "draw_seed", lambda: draw_seed() * 0 + 2**62
        )
    if broken == "backward":
        monkeypatch.setattr(block_attention, "launch", other_seed_backwards)
    assert len(told(drop_weights)[1]) == 1


def test_dropout_of_weights_passes_its_trial(launches):
    assert told(drop_weights)[1] == [] and "block_attention_forward" in launches


def test_generators_stay_as_they_are(launches, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(3)
    before, seeded[:] = torch.get_rng_state(), []
    ops.add_and_norm(X, X)
    assert seeded == [] and torch.equal(torch.get_rng_state(), before)


def test_the_default_dtype_is_the_users(launches):
    torch.set_default_dtype(torch.float64)
    try:
        assert told(added)[1] == [] and told(encoded)[1] == []
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


INTERRUPTED = """
import os, signal, threading, time, torch
from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.triton_ops import rms_norm
backend.INTERPRETER_IS_A_DEVICE = True
# a shell starts background jobs with SIGINT ignored, and they hand that down
signal.signal(signal.SIGINT, signal.default_int_handler)
launch = rms_norm.launch
def slow(*arguments, **keywords):
    if threading.current_thread() is not threading.main_thread():
        # an impatient user
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.02)
    launch(*arguments, **keywords)
rms_norm.launch = slow
try:
    ops.rms_norm(torch.ones(3, 5, 48))
except KeyboardInterrupt:
    print("interrupted", threading.active_count())
"""


def test_an_interrupt_waits_for_the_trial():
    ended = run_python(INTERRUPTED)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "interrupted 1\n"


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


DYING = """
import os, signal, sys, torch
from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.triton_ops import rms_norm
backend.INTERPRETER_IS_A_DEVICE = True
if sys.argv[1] == "dying":
    rms_norm.launch = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
ops.rms_norm(torch.ones(3, 5, 48))
print("computed")
"""


def run_python(source, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", source, *arguments],
        capture_output=True, text=True, cwd=ROOT, env=os.environ,
    )  # fmt: skip


def test_a_kernel_that_kills_its_process_is_avoided_by_the_next():
    assert run_python(DYING, "dying").returncode < 0
    for _ in range(2):
        after = run_python(DYING, "good")
        assert after.stdout == "computed\n", after.stderr
        assert "rms_norm" in after.stderr and "killed" in after.stderr
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
        assert told(linear)[1] == []
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("change", [None, one_percent])
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


def needed_by_a_classifier(device):
    return verify.needed(["lra_transnormer_t1"], [torch.float16], [40], device)


def test_what_a_model_launches_is_found(launches, device):
    needed = needed_by_a_classifier(device)
    assert launches == [] and verdict_files() == []
    tried = {configuration.op for configuration in needed}
    assert {"rms_norm", "residual", "gated_linear_unit"} < tried
    assert {"encoded_projections", "block_attention", "linear_attention"} < tried
    assert len(needed) == len(set(needed))


def run_verify(*arguments):
    return verify.main(["--device", "cpu", "--dtype", "float16", *arguments])


@pytest.fixture
def row_wise_alone(monkeypatch, device):
    """The command tries few kernels."""
    needed = needed_by_a_classifier(device)
    few = [each for each in needed if each.op in ("rms_norm", "lrpe")]
    monkeypatch.setattr(verify, "needed", lambda *arguments: few)


@pytest.mark.usefixtures("row_wise_alone")
def test_the_command(launches, capsys, tmp_path):
    assert run_verify("--output", str(tmp_path / "table.json")) == 0
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len(verdict_files()) == len(rows) > 1
    # another look finds them
    launches.clear()
    assert run_verify() == 0 and launches == []
    launches.change = one_percent
    assert run_verify() == 0
    assert run_verify("--again") == 1
    assert "torch: result 0 is wrong" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("row_wise_alone")
def test_the_command_with_a_process_for_each_trial(capsys):
    assert run_verify("--isolated") == 0
    assert len(verdict_files()) == len(capsys.readouterr().out.splitlines()) - 1

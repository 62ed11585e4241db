"""The cost model by hand, beside the configurations, and beside what was measured."""

import re
import sys

import pytest
import torch
import yaml
from pandas import DataFrame
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.cost_model import command, cpu_check, training_step
from benchmarks.cost_model.command import ALM, BLM, PAPER, Run
from benchmarks.cost_model.machines import Machine, kernels_take, update_takes
from benchmarks.cost_model.traced import trace
from benchmarks.cost_model.training_step import AFTER, BEFORE, Cost, Model, traced
from benchmarks.harness import results
from fairseq_transnormer.ops import linear_cross_entropy
from fairseq_transnormer.training.update_layout import NEEDS
from tests.paths import ROOT

TINY = Model("alm", "T2", width=32, heads=1, layers=2, vocabulary=50, length=16)


def test_operations_of_softmax_attention():
    d, n, f, layers, vocabulary, batch = 128, 256, 341, 1, 1000, 2
    model = Model("alm", "softmax", d, 2, layers, vocabulary, n)
    cost = traced(model, batch, AFTER)
    weights = layers * (4 * d**2 + 3 * d * f) + d * vocabulary
    # q k^T and P v, and five such products backwards, which compute P again; half of
    # each is hidden. LRPE's reflection is small
    attention = layers * 7 * 2 * n * d / 2
    for counted in (cost.first, cost.further):
        assert counted.flops.sum() == pytest.approx(
            batch * n * (6 * weights + attention), rel=0.01
        )


def adam(x, y):
    empty = torch.ops.aten.empty_like
    sums = empty(x), empty(x)
    torch._fused_adamw_(
        *([x], [y], [sums[0]], [sums[1]], [], []),
        **{"lr": 1.0, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1e-8},
        amsgrad=False,
        maximize=False,
    )


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (lambda x, y: x * y, 3 * 200),
        (lambda x, y: x.add_(y), 3 * 200),
        (lambda x, y: x.copy_(y), 2 * 200),
        (lambda x, y: x.zero_(), 200),
        (lambda x, y: x @ y, 3 * 200),
        (lambda x, y: x[:5] * x[5:], 3 * 100),
        (lambda x, y: x * x, 2 * 200),
        (lambda x, y: x * y[:1], 2 * 200 + 20),
        (lambda x, y: x.float(), 200 + 400),
        # two rows are read and written, and two int64
        (lambda x, y: torch.embedding(x, torch.arange(2)), 4 * 20 + 2 * 8),
        # what a result is written into is not read, what it is added to is
        (lambda x, y: torch.mm(x, x, out=y), 2 * 200),
        (lambda x, y: torch.addmm(y, x, x, out=y), 3 * 200),
        (lambda x, y: torch._foreach_mul_([x, y], 2.0), 4 * 200),
        # Adam writes weights and both sums, and reads their gradients besides
        (lambda x, y: adam(x, y), 7 * 200),
    ],
)
def test_bytes_of_a_kernel(call, size):
    with FakeTensorMode():
        x, y = (torch.empty(10, 10, dtype=torch.bfloat16) for _ in range(2))
        *_, last = trace(lambda: call(x, y)).kernels
    assert last["bytes"] == size and not last["single"]


@pytest.mark.parametrize(
    "call", [torch.empty_like, lambda x: x.new_empty(5), lambda x: torch.empty(3)]
)
def test_memory_is_taken_without_a_kernel(call):
    with FakeTensorMode():
        x = torch.empty(10)
        made = []
        counted = trace(lambda: made.append(call(x)))
    assert counted.kernels == [] and counted.peak_bytes == made[0].nbytes


def test_a_fill_does_not_read_what_it_is_shaped_like():
    with FakeTensorMode():
        x = torch.empty(10)
        (kernel,) = trace(lambda: torch.zeros_like(x)).kernels
    assert kernel["bytes"] == 40


def test_operations_of_a_product():
    with FakeTensorMode():
        x = torch.empty(10, 20)
        (product,) = (k for k in trace(lambda: x @ x.T).kernels if k["flops"])
    assert product["flops"] == 2 * 10 * 10 * 20 and product["single"]


def test_a_product_of_halves_that_is_added_to_a_wide_sum():
    """The sum is read and written in float32; the product runs at the halves' rate."""
    with FakeTensorMode():
        total, x = torch.empty(10, 10), torch.empty(10, 20, dtype=torch.bfloat16)
        wide = {"out_dtype": torch.float32, "out": total}
        (product,) = trace(lambda: torch.addmm(total, x, x.t(), **wide)).kernels
    assert product["flops"] == 2 * 10 * 10 * 20 and not product["single"]
    assert product["bytes"] == 2 * 400 + 2 * 400


def test_bytes_held_at_a_time():
    with FakeTensorMode():
        x = torch.empty(100)

        def call():
            y = x + 1
            y = y.view(10, 10) + 1
            del y
            return x + 1

        assert trace(call).peak_bytes == 2 * 400


def kernels(*rows):
    return DataFrame(rows, columns=["flops", "bytes", "single"])


def test_a_kernel_waits_for_the_longest_of_three():
    machine = Machine(flops=500, single_flops=50, memory=5, launch=1)
    some = kernels((4000, 10, False), (400, 10, True), (0, 50, False), (0, 1, False))
    assert kernels_take(some, machine).to_dict() == {
        "products": 4000 / 500 + 400 / 50,
        "memory": 50 / 5,
        "launches": 1,
        "exchange": 0,
    }


@pytest.mark.parametrize(("hidden", "seen"), [(0, 3.5), (0.5, 1.75), (1, 0)])
def test_an_update_by_hand(hidden, seen):
    """3 accumulated batches, Adam, and 2 x 7 / 8 of 100 bytes that the ring passes."""
    moved = (kernels((0, size, False)) for size in (30, 40, 20))
    cost = Cost(*moved, 5, 100, 7, 9, 70)
    machine = Machine(1, 1, memory=10, launch=0, link=50, hidden=hidden)
    found = update_takes(cost, 3, machine)
    assert [cost.peak_bytes(freq) for freq in (1, 2)] == [177, 179]
    assert found.to_dict() == {
        "products": 0,
        "memory": 3 + 2 * 4 + 2,
        "launches": 0,
        "exchange": pytest.approx(seen),
    }


def test_memory_held_in_half_precision():
    """2 bytes a weight; 4 of its copy, 4 of that one's gradient, 8 of Adam's sums."""
    cost = traced(TINY._replace(dtype="bfloat16"), 1, AFTER)
    singles = cost.gradient_bytes - 2 * cost.parameters  # theta of LRPE is float32
    assert 0 < singles < 0.01 * cost.parameters
    assert cost.held_bytes == pytest.approx(18 * cost.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("model", "parameters"), [(ALM, 155_988_540), (BLM, 124_673_241)]
)
def test_sizes_are_the_papers(model, parameters):
    with FakeTensorMode():
        built = training_step.build(model, AFTER)
    assert sum(p.numel() for p in built.parameters()) == parameters


def configuration(name):
    text = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_runs_are_those_of_the_configurations():
    runs = {run.name: run for run in PAPER}
    for kind in ("alm", "blm"):
        base, run = configuration(kind), runs[f"{kind.upper()} T2"]
        environment = base["hydra"]["job"]["env_set"]
        assert run.sequences == int(environment["SEQUENCES_PER_UPDATE"])
        assert run.most == base["dataset"]["batch_size"]
        assert run.updates == base["optimization"]["max_update"]
        assert run.model.length == base["task"]["tokens_per_sample"]
    assert training_step.MASKED == configuration("blm")["task"]["mask_prob"]
    for run in PAPER + command.GROWTH:
        batch, update_freq = run.layout()
        assert batch * update_freq * command.GPUS == run.sequences


# the sums' decay and addition, a root, eps, decay of the weights, and the step
ADAM = (8 + 12) + (8 + 12) + 8 + 8 + 8 + 16


@pytest.mark.parametrize(
    ("optimizer", "adam_bytes", "dtype"),
    [("adam", ADAM, "float16"), ("adam", ADAM, "bfloat16")]
    + [("fused_adam", 28, "bfloat16")],
)
def test_bytes_of_an_update(optimizer, adam_bytes, dtype):
    """Copies of gradients and weights, the norm, the scaling, and zeros at the end."""
    model = TINY._replace(dtype=dtype, vocabulary=5000)
    cost = traced(model, 1, AFTER._replace(optimizer=optimizer))
    others = (2 + 4) + 4 + 8 + 4 + (4 + 2)
    moved = cost.update.bytes.sum() / cost.parameters
    assert moved == pytest.approx(adam_bytes + others, rel=0.01)
    # one flat copy with fp16, one of each parameter with bf16
    assert (len(cost.update) > 200) == (dtype == "bfloat16" and optimizer == "adam")


def test_logits_that_are_held(monkeypatch):
    """All of them twice in float32 and more before; a chunk of them after."""
    module = sys.modules[linear_cross_entropy.__module__]
    monkeypatch.setattr(module, "CHUNK_BYTES", 64 * 5000 * 2)
    model = TINY._replace(kind="blm", vocabulary=5000, length=512, dtype="bfloat16")
    batch = 4
    tokens = int(batch * 512 * training_step.MASKED)
    before, after = (traced.__wrapped__(model, batch, w) for w in (BEFORE, AFTER))
    names = [list(cost.first.name) for cost in (before, after)]
    assert [x.count("cross_entropy_kernel") for x in names] == [0, -(-tokens // 64)]
    assert [x.count("_log_softmax") for x in names] == [1, 0]
    saved = before.pass_bytes - after.pass_bytes
    # bfloat16 beside it, and the float32 sum of the weight's gradient
    logits, weight = 5000 * tokens, 5000 * model.width
    assert saved > 8 * logits - 2 * 5000 * 64 - 4 * weight


def test_passes_are_added_up():
    """The second pass reads what the first one's gradients are, and writes the sum."""
    cost = traced(TINY._replace(vocabulary=50_000), 1, AFTER)
    more = cost.further.bytes.sum() - cost.first.bytes.sum()
    assert more == pytest.approx(3 * cost.gradient_bytes, rel=0.01)
    assert cost.accumulated_bytes > cost.pass_bytes


# of configurations: task and whether half precision is asked for
TASKS = {"ALM": "language_modeling", "BLM": "masked_lm"}


def test_scripts_expect_what_the_page_says():
    """The memory by which scripts choose a batch is that of the page, rounded up."""
    page = (ROOT / command.FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([AB]LM) \| (\w*float\d+) \| (\S+) \| (\S+) \|", page)
    assert len(rows) == 6
    for (kind, half), need in {
        (k, h): NEEDS[TASKS[k], h] for k in TASKS for h in (False, True)
    }.items():
        found = [
            (float(model), float(sequence))
            for name, dtype, model, sequence in rows
            if name == kind and (dtype != "float32") == half
        ]
        model, sequence = (max(each) for each in zip(*found, strict=True))
        assert model <= need[0] < model + 0.1
        assert sequence <= need[1] < sequence + 0.01


@pytest.mark.slow
def test_memory_is_a_line_over_the_batch():
    model, batch = command.NEEDY["ALM"]
    line = command.need(model, batch, "float16")
    assert line.model == pytest.approx(4.29, abs=0.01)
    for size in (2, 4, 12):
        way = AFTER._replace(device="V100")
        found = traced(model._replace(dtype="float16"), size, way).peak_bytes(2) / 1e9
        assert found == pytest.approx(line.model + size * line.sequence, rel=0.01)


@pytest.mark.slow
def test_what_was_measured_is_within_what_the_document_states():
    """Steps of small models on a CPU core, worked out from that core's rates."""
    run = results.read(ROOT / command.FOLDER / "cpu.json")
    page = (ROOT / "docs/cost.md").read_text(encoding="utf-8")
    least, most = map(float, re.search(r"time: (\S+) to (\S+) of", page).groups())
    found = cpu_check.compared(run["measurements"], run["settings"]["tokens"])
    assert [row.model for row in found] == cpu_check.MODELS and run["complete"]
    quotients = [row.seconds for row in found]
    assert round(min(quotients), 2) == least and round(max(quotients), 2) == most
    assert all(row.pass_bytes == pytest.approx(1, rel=1e-3) for row in found)


def test_steps_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cpu_check, "MODELS", [TINY])
    monkeypatch.setattr(cpu_check, "TOKENS", 32)
    bandwidth = {"bytes_per_second": 1e10}
    monkeypatch.setattr(cpu_check, "copy_bandwidth", lambda *_: bandwidth)
    path = tmp_path / "cpu.json"
    cpu_check.main(["--output", str(path)])
    assert "worked out over measured" in capsys.readouterr().out
    run = results.read(path)
    (row,) = run["measurements"]
    assert len(row["seconds"]) == cpu_check.SAMPLES and row["pass_bytes"] > 0
    (found,) = cpu_check.compared([row], 32)
    assert found.model == TINY and found.pass_bytes == pytest.approx(1, rel=1e-3)


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch, capsys):
    small = Run("small", TINY._replace(dtype="bfloat16"), 16, 1, 10)
    monkeypatch.setattr(command, "PAPER", [small] * 5)
    monkeypatch.setattr(command, "GROWTH", [small])
    monkeypatch.setattr(command, "AT_ONCE", [small])
    monkeypatch.setattr(command, "NEEDY", {"small": (small.model, 2)})
    monkeypatch.setattr(command, "PRECISIONS", {"float32": "V100"})
    command.main(["--folder", str(tmp_path)])
    assert str(tmp_path / "README.md") in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text()
    for name in ("V100", "A100", "H100"):
        assert f"| small | 8 x {name} | 1 x 2 | " in page
    # five runs, and the one of "nothing accumulated", on each machine
    assert page.count("| small | 8 x ") == 3 * (5 + 1) + 1
    for name in command.PARTS:
        assert page.count(f"| small | {name} | ") == 2
    assert page.count("| small | float32 | ") == 1

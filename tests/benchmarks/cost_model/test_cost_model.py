"""The cost model by hand, beside the configurations, and beside what was measured."""

import re
from statistics import median

import pytest
import torch
import yaml
from pandas import DataFrame
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.cost_model import command, traced
from benchmarks.cost_model.command import ALM, BLM, PAPER, Machine, Run
from benchmarks.cost_model.traced import Cost, Model, trace
from benchmarks.harness import results
from tests.paths import ROOT

TINY = Model("alm", "T2", width=32, heads=1, layers=2, vocabulary=50, length=16)


def test_operations_of_softmax_attention():
    d, n, f, layers, vocabulary, batch = 128, 256, 341, 2, 1000, 2
    model = Model("alm", "softmax", d, 2, layers, vocabulary, n)
    counted = traced.traced(model, batch).micro.flops.sum()
    weights = layers * (4 * d**2 + 3 * d * f) + d * vocabulary
    # q k^T and P v, and five such products backwards, which compute P again; half of
    # each is hidden. LRPE's reflection is small
    attention = layers * 7 * 2 * n * d / 2
    assert counted == pytest.approx(batch * n * (6 * weights + attention), rel=0.01)


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
        (lambda x, y: torch.embedding(x, torch.arange(2)), 2 * 20 + 2 * 8),
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
    assert command.kernels_take(some, machine).to_dict() == {
        "products": 4000 / 500 + 400 / 50,
        "memory": 50 / 5,
        "launches": 1,
        "exchange": 0,
    }


@pytest.mark.parametrize(("hidden", "seen"), [(0, 3.5), (0.5, 1.75), (1, 0)])
def test_an_update_by_hand(hidden, seen):
    """2 accumulated batches, Adam, and 2 x 7 / 8 of 100 bytes that the ring passes."""
    cost = Cost(kernels((0, 30, False)), kernels((0, 20, False)), 5, 100, 7, 70)
    machine = Machine(1, 1, memory=10, launch=0, link=50, hidden=hidden)
    found = command.update_takes(cost, 2, machine)
    assert found.to_dict() == {
        "products": 0,
        "memory": 2 * 3 + 2,
        "launches": 0,
        "exchange": pytest.approx(seen),
    }


def test_memory_held_in_half_precision():
    """2 bytes a weight; 4 of its copy, 4 of that one's gradient, 8 of Adam's sums."""
    cost = traced.traced(TINY._replace(dtype="bfloat16"), 1)
    singles = cost.gradient_bytes - 2 * cost.parameters  # theta of LRPE is float32
    assert 0 < singles < 0.01 * cost.parameters
    assert cost.held_bytes == pytest.approx(18 * cost.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("model", "parameters"), [(ALM, 155_988_540), (BLM, 124_673_241)]
)
def test_sizes_are_the_papers(model, parameters):
    with FakeTensorMode():
        built = traced.build(model)
    assert sum(p.numel() for p in built.parameters()) == parameters


def configuration(name):
    text = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_runs_are_those_of_the_configurations():
    runs = {run.name: run for run in PAPER}
    for kind in ("alm", "blm"):
        base, run = configuration(f"base/{kind}"), runs[f"{kind.upper()} T2"]
        environment = base["hydra"]["job"]["env_set"]
        assert run.sequences == int(environment["SEQUENCES_PER_UPDATE"])
        assert run.most == base["dataset"]["batch_size"]
        assert run.updates == base["optimization"]["max_update"]
        assert run.model.length == base["task"]["tokens_per_sample"]
    assert traced.MASKED == configuration("base/blm")["task"]["mask_prob"]
    for run in PAPER + command.GROWTH:
        batch, update_freq = run.layout()
        assert batch * update_freq * command.GPUS == run.sequences


def test_what_was_measured_is_within_what_the_document_states():
    """Steps of small models on a CPU core, worked out from that core's rates."""
    run = results.read(ROOT / command.FOLDER / "cpu.json")
    settings = run["settings"]
    flops = settings["products_per_second"]
    memory = settings["copy_bandwidth"]["bytes_per_second"]
    machine = Machine(flops, flops, memory, settings["seconds_a_kernel"])
    page = (ROOT / "docs/cost.md").read_text(encoding="utf-8")
    least, most = map(float, re.search(r"time: (\S+) to (\S+) of", page).groups())
    quotients = []
    for row in run["measurements"]:
        model = Model(**{name: row[name] for name in Model._fields})
        cost = traced.traced(model, settings["tokens"] // model.length)
        seconds = sum(command.kernels_take(k, machine).sum() for k in cost[:2])
        quotients.append(seconds / median(row["seconds"]))
        assert cost.pass_bytes == pytest.approx(row["pass_bytes"], rel=1e-3)
    assert len(quotients) == 9
    assert round(min(quotients), 2) == least and round(max(quotients), 2) == most


def test_the_command_line(tmp_path, monkeypatch, capsys):
    small = Run("small", TINY._replace(dtype="bfloat16"), 16, 1, 10)
    monkeypatch.setattr(command, "PAPER", [small])
    monkeypatch.setattr(command, "GROWTH", [small])
    command.main(["--folder", str(tmp_path)])
    assert str(tmp_path / "README.md") in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text()
    for name in ("V100", "A100", "H100"):
        assert f"| small | 8 x {name} | 1 x 2 | " in page
    assert page.count("| small | ") == 4

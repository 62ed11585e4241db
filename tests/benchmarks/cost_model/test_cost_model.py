"""The cost model by hand, beside the configurations, and beside its own page."""

import json
import os
import re

import pytest
import torch
import yaml
from benchmarks.cost_model.__main__ import main
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.cost_model import check as cost_check
from benchmarks.cost_model import model as cost_model
from benchmarks.cost_model import tables as cost_tables
from benchmarks.cost_model import workers as cost_workers
from benchmarks.cost_model.machines import Assumptions, Machine
from benchmarks.cost_model.model import Model, Run, Seconds
from benchmarks.cost_model.traced import Kernel, trace
from tests.paths import ROOT

ALL = Assumptions(products=1, bandwidth=1, kernel=0, link=1, overlap=0)
MACHINE = Machine("m", "bfloat16", 1000, 100, 10, 0, link=50, network=20)
TINY = Model("alm", "T2", width=32, heads=1, layers=2, vocabulary=50, length=16)


def test_operations_of_softmax_attention():
    d, n, f, layers, vocabulary, batch = 128, 256, 341, 2, 1000, 2
    model = Model("alm", "softmax", d, 2, layers, vocabulary, n)
    counted = sum(k.flops for k in cost_model.traced(model, batch).micro)
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
    assert last.bytes == size and not last.single
    assert last.flops == (2 * 10**3 if last.name == "mm" else 0)


def test_bytes_held_at_a_time():
    with FakeTensorMode():
        x = torch.empty(100)

        def call():
            y = x + 1
            y = y.view(10, 10) + 1
            del y
            return x + 1

        assert trace(call).peak_bytes == 2 * 400


def test_a_kernel_waits_for_the_longest_of_three():
    kernels = [
        Kernel("product", 4000, 10, single=False),
        Kernel("product", 400, 10, single=True),
        Kernel("sum", 0, 50, single=False),
        Kernel("little", 0, 1, single=False),
    ]
    assumed = Assumptions(products=0.5, bandwidth=0.5, kernel=1, link=1, overlap=0)
    found = cost_model.kernels_take(kernels, MACHINE, assumed)
    assert found == Seconds(4000 / 500 + 400 / 50, 50 / 5, 1, 0)
    assert found.bottleneck == "products 59%"


@pytest.mark.parametrize(("workers", "rate"), [(2, 50), (8, 50), (32, 20)])
def test_a_ring_passes_each_part_on(workers, rate):
    size = 3200
    # every worker sends a part in each step: W - 1 steps add up, W - 1 hand out
    seconds = sum(size / workers / rate for _ in range(2 * (workers - 1)))
    found = cost_model.exchange_takes(size, workers, 8, MACHINE, ALL)
    assert found == pytest.approx(seconds)


def test_one_worker_exchanges_nothing():
    assert cost_model.exchange_takes(3200, 1, 8, MACHINE, ALL) == 0


def test_an_update_by_hand(monkeypatch):
    """2 accumulated batches of 2 of the 8 sequences, then Adam and the exchange."""
    micro, step = Kernel("a", 0, 30, False), Kernel("b", 0, 20, False)
    cost = cost_model.Traced((micro,), (step,), 5, 100, 7, 70)
    monkeypatch.setattr(cost_model, "traced", lambda model, batch: cost)
    run = Run("r", TINY, 8, 2, 10, workers=2)
    # 2 / 3 of the 3 s of the last backward pass, or all of 2 s, hide the exchange
    for overlap, seen in ((0, 2), (0.5, 1), (1, 0)):
        found = run.update_takes(MACHINE, ALL._replace(overlap=overlap))
        assert found == Seconds(0, 2 * 3 + 2, 0, seen)
    assert run.peak_bytes(MACHINE) == 7 + 70 + 100


def test_memory_held_in_half_precision():
    """2 bytes a weight; 4 of its copy, 4 of that one's gradient, 8 of Adam's sums."""
    cost = cost_model.traced(TINY._replace(dtype="bfloat16"), 1)
    singles = cost.gradient_bytes - 2 * cost.parameters  # theta of LRPE is float32
    assert 0 < singles < 0.01 * cost.parameters
    assert cost.held_bytes == pytest.approx(18 * cost.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (cost_tables.ALM, 155_988_540),
        (cost_tables.BLM, 124_673_241),
        # embedding, positions, 2 layers, head of 64 -> 128 -> 2
        (
            cost_tables.ARENA._replace(length=2048),
            260 * 64 + 2048 * 64 + 66_484 + 64 * 128 + 128 + 128 * 2 + 2,
        ),
    ],
)
def test_sizes_are_the_papers(model, parameters):
    with FakeTensorMode():
        built = cost_model.build(model)
    assert sum(p.numel() for p in built.parameters()) == parameters


def configuration(name):
    text = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_runs_are_those_of_the_configurations():
    runs = {run.name: run for run in cost_tables.PAPER}
    for kind in ("alm", "blm"):
        base, run = configuration(f"base/{kind}"), runs[f"{kind.upper()} T2"]
        environment = base["hydra"]["job"]["env_set"]
        assert run.sequences == int(environment["SEQUENCES_PER_UPDATE"])
        assert run.most == base["dataset"]["batch_size"]
        assert run.updates == base["optimization"]["max_update"]
        assert run.model.length == base["task"]["tokens_per_sample"]
        assert cost_model.MASKED == configuration("base/blm")["task"]["mask_prob"]
    for name in ("text", "listops", "retrieval", "pathfinder", "image"):
        arena, run = configuration(f"lra/{name}"), runs[f"LRA {name}"]
        documents = 2 if name == "retrieval" else 1
        assert run.sequences == documents * arena["dataset"]["batch_size"]
        assert run.updates == configuration("base/lra")["optimization"]["max_update"]
    for run in runs.values():
        batch, update_freq = run.layout()
        assert batch * update_freq * run.workers == run.sequences


def test_updates_of_glue():
    """3 epochs of the problems' training sets."""
    large = {"MNLI": 392_702, "QQP": 363_846, "QNLI": 104_743, "SST-2": 67_349}
    small = {"CoLA": 8_551, "MRPC": 3_668}
    for sizes, batch, updates in (
        (large, 32, cost_tables.LARGE_PROBLEMS),
        (small, 16, cost_tables.SMALL_PROBLEMS),
    ):
        exact = sum(3 * size / batch for size in sizes.values())
        assert updates == pytest.approx(exact, rel=0.01)


def test_the_page_is_that_of_the_measurements(tmp_path):
    """A measured point's row stands in the results, and all are within the range that
    docs/cost.md states."""
    folder = ROOT / cost_check.FOLDER
    measured = json.loads((folder / cost_check.FILE).read_text())
    measured["measurements"] = measured["measurements"][-1:]
    (tmp_path / "one.json").write_text(json.dumps(measured))
    row = cost_tables.check(tmp_path / "one.json").splitlines()[-1]
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert row in lines
    table = lines[len(lines) - len(cost_check.POINTS) :]
    assert table[-1] == row
    page = (ROOT / "docs/cost.md").read_text(encoding="utf-8")
    stated = re.search(r"time: (\S+) to (\S+), memory: (\S+) to (\S+) of", page)
    least, most, least_bytes, most_bytes = map(float, stated.groups())
    for line in table:
        *_, quotient, worked_out, held = line.strip("| ").split(" | ")
        assert least <= float(quotient) <= most
        assert least_bytes <= float(worked_out) / float(held) <= most_bytes


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch, capsys):
    small = Run("small", TINY, 8, 2, 10, workers=2)
    monkeypatch.setattr(cost_tables, "PAPER", [small] * 5)
    for name in ("ALM", "SMALL", "SMALL_SOFTMAX"):
        monkeypatch.setattr(cost_tables, name, TINY)
    monkeypatch.setattr(cost_tables, "WIDTHS", (64,))
    monkeypatch.setattr(cost_tables, "LAYERS", (2,))
    monkeypatch.setattr(cost_tables, "LENGTHS", (512,))
    monkeypatch.setattr(cost_tables, "WORKERS", (1, 2))
    monkeypatch.setattr(cost_check, "POINTS", [TINY._replace(length=512)])
    monkeypatch.setattr(cost_check, "TOKENS", 512)
    monkeypatch.setattr(cost_workers, "MODEL", TINY._replace(length=512))
    monkeypatch.setattr(cost_workers, "SEQUENCES", 2)
    monkeypatch.setattr(cost_workers, "WORKERS", (1, 2))
    monkeypatch.setattr(cost_workers, "ROUNDS", 1)
    threads = torch.get_num_threads()
    options = ["--measure", "--measure-workers", "--folder", str(tmp_path)]
    try:
        main(options)
    finally:
        torch.set_num_threads(threads)
    assert f"wrote {tmp_path / 'README.md'}" in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text()
    assert page.count("\n## ") == 8 and page.count(", modelled") == 6
    workers = json.loads((tmp_path / "workers.json").read_text())["measurements"]
    counts = [row["workers"] for row in workers]
    assert counts == [n for n in (1, 2) if n <= len(os.sched_getaffinity(0))]
    assert all(len(row["seconds"]) == 3 for row in workers)
    # half of the sequences: half of the activations, and the same gradients
    one, two = (row["pass_bytes"] for row in (workers[0], workers[-1]))
    assert len(counts) == 1 or 0.5 < two / one < 0.6
    assert (
        "| small | 2 x V100 | 2 x 2 | " in page and "| alm T2 | 32 | 2 | 512 | " in page
    )
    assert (
        json.loads((tmp_path / "cpu.json").read_text())["environment"]["threads"] == 1
    )

"""The commands at tiny sizes: what the JSON holds, and what the report makes of it."""

import json
import shlex
import statistics
import time

import pytest
import torch

from benchmarks.generation import generation_cost, image_generation, token_cost
from benchmarks.harness import results, roofline
from benchmarks.harness.phases import LAYER, MODEL, STACK
from benchmarks.kernels import command as kernels
from benchmarks.linear_transformers import (
    attention_lengths,
    chunk_sizes,
    linear_attention_forms,
    sampling_layer,
)
from benchmarks.report import command as report
from benchmarks.report import page
from benchmarks.training import training_step, update_cost
from tests.messages import assert_names, command_refuses
from tests.paths import ROOT

PARTS = (MODEL, STACK, LAYER)
QUICK = "--least-repeats 2 --most-repeats 2 --threads 1"
KERNELS = f"{QUICK} --tokens 64 --lengths 16 32 64 --heads 2 --width 8 "
KERNELS += "--block-size 16 --check-length 16 --compiled-lengths 8"
GENERATION = f"{QUICK} --contexts 5 9 --width 32 --heads 2 --layers 2 --vocabulary 50"


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(module, arguments, path):
    arguments = f"{arguments} --output {shlex.quote(str(path))}"
    module.main(shlex.split(arguments))
    written = json.loads(path.read_text())
    assert written["benchmark"] == module.NAME
    assert written["command"] == f"python -m benchmarks {module.NAME} {arguments}"
    environment = written["environment"]
    assert environment["threads"] == 1
    assert environment["torch"] == torch.__version__
    assert all(
        environment[key] for key in ("python", "cpu", "device", "fairseq_transnormer")
    )
    for row in written["measurements"]:
        if "skipped" not in row:
            assert len(row["seconds"]) == 2 and min(row["seconds"]) > 0
    return written


@pytest.fixture
def small_buffers(monkeypatch):
    """The copy and the flushed buffer are for machines that measure."""
    monkeypatch.setattr(
        "benchmarks.harness.cold_cache.buffer_bytes", lambda device: 1000
    )
    monkeypatch.setitem(roofline.BUFFER_BYTES, "cpu", 1000)


def test_kernels(tmp_path, small_buffers):
    # 2 heads x 32 x 32 float32, twice, are 16 KiB; those of 64 tokens are too large
    limit = f"--groups linear_attention --quadratic-limit-gib {16 / 2**20}"
    written = run(kernels, f"{KERNELS} {limit}", tmp_path / "a.json")
    rows = written["measurements"]
    assert {row["group"] for row in rows} == {"linear_attention"}
    # every contestant of both variants has rows
    groups = kernels.groups_of(kernels.parse(f"{KERNELS} {limit}".split()))
    for group in groups:
        for contestant in group.contestants:
            named = (group.variant, contestant.name)
            assert any((r["variant"], r["contestant"]) == named for r in rows)
    naive = [row for row in rows if row["contestant"] == "naive"]
    skipped = [row for row in naive if "skipped" in row]
    assert [(row["length"], row["batch"]) for row in skipped] == [(64, 1)] * 2
    assert "--quadratic-limit-gib" in skipped[0]["skipped"]
    assert len(naive) - len(skipped) == 2 * 2 * 2
    assert not any(row["wrong"] for row in rows if "seconds" in row)
    settings = written["settings"]
    assert settings["copy_bandwidth"]["bytes_per_second"] > 0
    assert settings["tokens"] == 64 and settings["flushed_bytes"] == 1000
    assert "allocator" in settings["memory_method"]


def test_an_interrupt_keeps_what_was_measured(tmp_path, small_buffers, monkeypatch):
    measured = kernels.measure

    def interrupted(group, *others):
        if group.variant == "sum-normalised":
            raise KeyboardInterrupt
        yield from measured(group, *others)

    monkeypatch.setattr(kernels, "measure", interrupted)
    path = tmp_path / "a.json"
    with pytest.raises(KeyboardInterrupt):
        kernels.main(f"{KERNELS} --groups linear_attention --output {path}".split())
    rows = json.loads(path.read_text())["measurements"]
    assert {row["variant"] for row in rows} == {"causal"}


def test_a_slow_contestant_leaves_the_others_their_time(
    tmp_path, small_buffers, monkeypatch
):
    """Each that compiles or tunes has a part of the time, at any length."""
    names = [f"torch.compile of {name}" for name in ("naive", "ours (torch)")]
    ours, slow = [], []

    def measured(group, entered, setup, rules):
        if len(entered) == 1 and entered[0].name in names:
            slow.append(entered[0].name)
            time.sleep(0.6)
            assert rules.deadline.over()
        elif not entered[0].slow_start:
            ours.append(rules.deadline.over())
        return iter(())

    monkeypatch.setattr(kernels, "measure", measured)
    arguments = f"{KERNELS} --groups linear_attention --time-limit 3"
    kernels.main([*arguments.split(), "--output", str(tmp_path / "a.json")])
    assert slow == names and ours == [None, None]


def test_kernels_default_to_what_a_cpu_can_do():
    options = kernels.parse([])
    assert (options.tokens, options.dtype) == (16384, "float32")
    assert options.lengths == [512, 1024, 2048, 4096, 8192, 16384]


def test_generation_cost(tmp_path):
    limits = f"--token-by-token-limit 5 --quadratic-limit-gib {50 / 2**30}"
    kinds = "--dtype bfloat16 --backends torch triton"
    written = run(
        generation_cost, f"{GENERATION} {limits} {kinds}", tmp_path / "g.json"
    )
    rows = written["measurements"]
    assert len(rows) == 2 * (8 + 4)
    skipped = {
        (row["contestant"], row["context"]): row["skipped"]
        for row in rows
        if "skipped" in row
    }
    for context in (5, 9):
        for name in ("states", "recomputing"):
            reason = skipped.pop((f"TransNormer T2 (triton), {name}", context))
            assert_names(reason, "Triton", "cpu", "CUDA")
        for name in (
            "TransNormer T2 (torch), states",
            "TransNormer T2 (triton), states",
            "fairseq transformer_lm, cache",
        ):
            reason = skipped.pop((f"{name}, CUDA graph", context))
            assert_names(reason, "CUDA graphs", "device")
    # masks of 5 x 5 and 9 x 9 bfloat16 take 50 and 162 bytes
    assert set(skipped) == {
        ("fairseq transformer_lm, token by token", 9),
        ("fairseq transformer_lm, plain pass without cache", 9),
    }
    assert all(
        row["kept_bytes"] > 0
        for row in rows
        if row["phase"] == "one token" and "skipped" not in row
    )
    assert written["settings"]["dtype"] == "bfloat16"
    assert set(written["settings"]["parameters"]) == {
        "TransNormer T2",
        "fairseq transformer_lm",
    }


def test_token_cost(tmp_path):
    written = run(token_cost, f"{GENERATION} --tokens 3", tmp_path / "t.json")
    rows = {(r["contestant"], r["context"]): r for r in written["measurements"]}
    assert len(rows) == 3 * 2 and written["environment"]["transformers"]
    assert report.main(["--folder", str(tmp_path)]) is None
    page = (tmp_path / "README.md").read_text()
    ours, peer = (
        statistics.median(rows[name, 9]["seconds"])
        for name in (token_cost.OURS, token_cost.STATIC)
    )
    ratios = page.partition("time divided by that of")[2]
    (line,) = [
        line
        for line in ratios.partition("**Kept")[0].splitlines()
        if line.startswith(f"| {token_cost.STATIC} | ")
    ]
    shown = float(line.split("|")[3].strip(" x"))
    assert shown == pytest.approx(peer / ours, rel=0.01)


def test_image_generation(tmp_path):
    sizes = "--sides 2 3 --images 2 --levels 5 --width 16 --heads 2 --layers 2"
    written = run(image_generation, f"{QUICK} {sizes}", tmp_path / "i.json")
    rows = {(r["contestant"], r["context"]): r for r in written["measurements"]}
    assert len(rows) == 10 * 2 and set(written["settings"]["parameters"]) == {
        "TransNormer T2", "1+elu", "LSH-1", "LSH-4", "vanilla"
    }  # fmt: skip
    for system in ("TransNormer T2", "1+elu"):
        kept = [rows[f"{system}, constant state", n]["kept_bytes"] for n in (4, 9)]
        assert kept[0] == kept[1] > 0
    # a key and a value of 16 float32 for each of 2 layers and 5 more tokens, and a flag
    for system in ("vanilla", "LSH-4"):
        cached = [rows[f"{system}, key-value cache", n]["kept_bytes"] for n in (4, 9)]
        assert cached[1] - cached[0] >= 5 * 2 * 2 * 16 * 4
    assert report.main(["--folder", str(tmp_path)]) is None
    page = (tmp_path / "README.md").read_text()
    assert "| 1+elu, constant state | " in page and "| vanilla, recomputed | " in page


def test_attention_lengths(tmp_path):
    sizes = "--lengths 16 8 64 --tokens 32 --heads 2 --width 4"
    limits = f"--quadratic-limit-gib {2 * 2 * 16 * 16 * 4 / 2**30}"
    written = run(attention_lengths, f"{QUICK} {sizes} {limits}", tmp_path / "l.json")
    rows = {(r["contestant"], r["length"]): r for r in written["measurements"]}
    assert len(rows) == 8 * 3
    skipped = [key for key, row in rows.items() if "skipped" in row]
    assert skipped == [("softmax, matrices", 64)]
    batches = {length: row["batch"] for (_, length), row in rows.items()}
    assert batches == {8: 4, 16: 2, 64: 1}
    assert report.main(["--folder", str(tmp_path)]) is None
    lines = (tmp_path / "README.md").read_text().splitlines()
    title = next(line for line in lines if line.startswith("**Time of a sequence"))
    (line,) = [
        line for line in lines[lines.index(title) :][:12] if line.startswith("| LSH-4")
    ]
    # of one sequence, not of the batch
    expected = 1e3 * statistics.median(rows["LSH-4", 8]["seconds"]) / 4
    shown = float(line.split("|")[2].split("(")[0])
    assert shown == pytest.approx(expected, rel=0.05)


def test_linear_attention_forms(tmp_path):
    sizes = "--lengths 4 8 16 --tokens 8 --widths 4 8 --width 8 --width-length 6"
    # the states of 16 tokens take 2 heads x 16 x 8 x 8 float32 = 8 KiB
    limits = f"--quadratic-limit-gib {4 / 2**20}"
    written = run(
        linear_attention_forms, f"{QUICK} {sizes} {limits}", tmp_path / "f.json"
    )
    assert written["complete"]
    rows = written["measurements"]
    # 3 lengths at batch 1, 2 of at most 8 tokens, 2 widths
    assert len(rows) == 7 * (3 + 2 + 2) * 2
    skipped = [row for row in rows if "skipped" in row]
    assert [(row["contestant"], row["length"]) for row in skipped] == [
        ("state parallel", 16)
    ] * 2
    limit = f"--quadratic-limit-gib {4 / 2**20:g}"
    assert_names(skipped[0]["skipped"], "states", "7.63e-06 GiB", limit)
    assert all(row["error"] < 1e-5 for row in rows if "skipped" not in row)


def test_some_linear_attention_forms(tmp_path):
    names = ["state loop", "linear_attention (torch)"]
    flags = f"{QUICK} --lengths 4 --tokens 1 --widths 4 --width-length 4".split()
    output = ["--output", str(tmp_path / "f.json")]
    linear_attention_forms.main([*flags, *output, "--forms", *names])
    rows = json.loads((tmp_path / "f.json").read_text())["measurements"]
    assert {row["contestant"] for row in rows} == set(names)


def test_limits_of_time(tmp_path):
    flags = f"{QUICK} --lengths 4 8 --widths 4 --width-length 4 --tokens 4"
    for limit, reason in (("call", "after"), ("time", "was over")):
        written = run(
            linear_attention_forms,
            f"{flags} --{limit}-limit 1e-9",
            tmp_path / f"{limit}.json",
        )
        rows = [r for r in written["measurements"] if r["sweep"] == "batch 1"]
        assert all(reason in r["skipped"] for r in rows if r["length"] == 8)
    assert all("skipped" in row for row in written["measurements"])


def test_chunk_sizes(tmp_path):
    sizes = "--chunk-sizes 2 4 8 --lengths 4 8 --widths 4 --tokens 8"
    written = run(chunk_sizes, f"{QUICK} {sizes}", tmp_path / "c.json")
    rows = written["measurements"]
    # no chunk is longer than the sequence
    assert len(rows) == 2 * 2 * (2 + 3)
    assert written["settings"]["fixed_chunk_size"] == 64


def test_sampling_layer(tmp_path):
    sizes = "--contexts 3 9 --heads 2 --width 8"
    written = run(sampling_layer, f"{QUICK} {sizes}", tmp_path / "s.json")
    kept = {
        (row["contestant"], row["context"]): row["kept_bytes"]
        for row in written["measurements"]
    }
    assert len(kept) == 6 * 2
    for context in (3, 9):
        assert kept[sampling_layer.OUR_STATE, context] == 2 * 8 * 8 * 4
        assert kept[sampling_layer.WRITTEN_CACHE, context] == 2 * 2 * context * 8 * 4


def test_report(tmp_path, small_buffers):
    run(kernels, f"{KERNELS} --groups block_attention", tmp_path / "a.json")
    written = run(
        generation_cost, f"{GENERATION} --token-by-token-limit 5", tmp_path / "g.json"
    )
    report.main(["--folder", str(tmp_path)])
    readme = (tmp_path / "README.md").read_text()
    assert written["command"] in readme
    assert "not measured (no GPU results)" in readme
    # the reason why a case was left out stands there too
    assert "9 steps, above --token-by-token-limit 5" in readme
    steps = [row for row in written["measurements"] if row["phase"] == "one token"]
    ours, peer = (
        sum(row["seconds"]) / 2
        for row in (steps[0], steps[3])  # the median of two is their mean
    )
    (line,) = (
        line
        for line in readme.splitlines()
        if line.startswith("| fairseq transformer_lm, cache | ") and "x | " in line
    )
    assert float(line.split("|")[2].strip(" x")) == pytest.approx(peer / ours, rel=0.01)


def test_a_file_of_several_runs(tmp_path, drawn, capsys):
    """The same page as of their own files, which take the place of those in it."""
    sizes = "--lengths 8 16 --tokens 16 --heads 2 --width 4"
    a = run(attention_lengths, f"{QUICK} {sizes}", tmp_path / "a.json")
    b = a | {"command": "another"}
    (tmp_path / "b.json").write_text(json.dumps(b))

    def made() -> list[bytes]:
        report.main(["--folder", str(tmp_path)])
        names = ("README.md", "a.png", "b.png")
        return [(tmp_path / name).read_bytes() for name in names]

    readme, *pictures = of_files = made()
    assert readme.index(b"(a.png)") < readme.index(b"(b.png)")
    assert pictures[0] != pictures[1]
    several = tmp_path / "several.json"
    several.write_text(json.dumps({"b": b, "a": b}))
    (tmp_path / "b.json").unlink()
    assert made() == of_files
    (tmp_path / "a.json").unlink()
    assert made()[1] == pictures[1]
    several.write_text(json.dumps({"a": a, "c": {}}))
    parts = (several, "c: benchmark=None")
    command_refuses(report.main, ["--folder", tmp_path], capsys, *parts)


HEADS = (generation_cost, image_generation, token_cost, training_step)


@pytest.mark.parametrize(
    ("module", "arguments", "parts"),
    [
        (kernels, "--device tpu", ["--device", "'tpu'", "cpu", "cuda"]),
        (kernels, "--lengths 0", ["--lengths", "'0'", "from 1"]),
        (kernels, "--dtype int8", ["--dtype", "'int8'", "float32", "bfloat16"]),
        (kernels, "--lengths 48 --tokens 64", ["--lengths 48", "divisors"]),
        (kernels, "--check-length 100", ["--check-length 100", "--block-size 64"]),
        (kernels, "--groups attention", ["--groups", "'attention'", "norm_attention"]),
        (linear_attention_forms, "--forms loop", ["--forms 'loop'", "state loop"]),
        (training_step, "--tokens 100 --lengths 50 64", ["--tokens 100", 64]),
        (training_step, "--tokens 100", ["--tokens 100", 512, "multiples"]),
        (training_step, "--time-limit 0", ["--time-limit", "'0'", "above 0"]),
        (training_step, "--parts decoder", ["--parts", "'decoder'", *PARTS]),
        (training_step, "--backends cuda", ["--backends", "'cuda'", "torch", "triton"]),
        *(
            (update_cost, f"--batches {batch}", ["--batches", batch, "allowed"])
            for batch in ("512", "0x16", "40x16", "axb")
        ),
        *(
            (module, f"--width 30 --heads {heads}", [f"--heads {heads}", "--width 30"])
            for module, heads in zip(HEADS, (4, 10, 4, 10), strict=True)
        ),
    ],
)
def test_bad_arguments(module, arguments, parts, capsys):
    command_refuses(module.main, arguments.split(), capsys, *parts)


def test_report_without_data(tmp_path, capsys):
    arguments = ["--folder", tmp_path]
    command_refuses(report.main, arguments, capsys, "--folder", tmp_path, ".json")


@pytest.mark.parametrize(
    "text, parts",
    [
        ("{}", ["benchmark=None", *page.SECTIONS]),
        ("[1]", ["benchmark=None", *page.SECTIONS]),
        ('{"benchmark": []}', ["benchmark=[]", *page.SECTIONS]),
        ('{"benchmark": ', ["JSON"]),
    ],
)
def test_report_of_a_foreign_file(text, parts, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text(text)
    command_refuses(report.main, ["--folder", tmp_path], capsys, path, *parts)


def test_the_report_takes_every_result_of_the_repository():
    folder = ROOT / results.FOLDER
    paths = list(folder.glob("*.json"))
    assert paths
    for path in paths:
        for name, run in results.read_all(path).items():
            assert run.get("benchmark") in page.SECTIONS, (path, name)

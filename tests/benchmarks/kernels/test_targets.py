"""Where a run stands, from runs made up here, and the tables of GPUs."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.harness.phases import FORWARD, GRAPH, LAUNCHED, TRAINING
from benchmarks.kernels import targets
from benchmarks.kernels.targets import KERNEL, SMALL, SOFTMAX, TARGETS
from benchmarks.report import gpu_runs, sections
from benchmarks.report.tables import rows_of

FLASH, CUDNN = SOFTMAX
BANDWIDTH = 1000.0
NOTHING = {"errors": {"forward": 0.0, "gradients": 0.0}}
NOTHING["yardstick"] = NOTHING["errors"]


def row(group, variant, mode, n, name, seconds, least=100, **more):
    fields = dict(group=group, variant=variant, mode=mode, length=n, contestant=name)
    fields |= dict(batch=1, timing=GRAPH, seconds=[seconds], least_bytes=least)
    fields |= dict(peak_bytes=7, computes="c", ours=name == KERNEL)
    return {**fields, **NOTHING, "same": name not in SOFTMAX, "wrong": False, **more}


def run(*rows, gpu=True):
    environment = {"device": "D", "threads": 1, "torch": "T"}
    return {
        "benchmark": "kernels",
        "command": "c",
        "environment": environment | ({"capability": [9, 0]} if gpu else {}),
        "settings": {"copy_bandwidth": {"bytes_per_second": BANDWIDTH}},
        "measurements": list(rows),
    }


def cells(which, run, timing=GRAPH):
    """The cells of the targets whose sentence holds ``which``."""
    rows = rows_of(run)
    rows["share"] = rows.least_bytes / rows.time / BANDWIDTH
    rows = rows[rows.time.notna()]
    return [t.cell(rows, timing) for t in TARGETS if which in t.what]


def kernels(run):
    """The section's Markdown."""
    parts = sections.kernels(run)
    return "\n\n".join(p if isinstance(p, str) else p.markdown() for p in parts)


def norm(n, name, seconds, **more):
    return row("norm_attention", "causal", TRAINING, n, name, seconds, **more)


FASTEST = "NormAttention (causal"


@pytest.mark.parametrize(
    ("peer", "expected"),
    [(2.6, "1.30x (causal, n = 512): met"), (2.5, "1.25x (causal, n = 512): MISSED")],
)
def test_the_fastest_peer_at_the_worst_length(peer, expected):
    rows = [norm(512, KERNEL, 2.0), norm(512, "fla a", peer), norm(512, "fla b", 99.0)]
    rows += [norm(4096, KERNEL, 1.0), norm(4096, "fla a", 5.0)]
    assert cells(FASTEST, run(*rows)) == [expected]


def test_who_does_not_count_as_a_peer():
    """Ours in torch, plain torch, who computes something else, and who is wrong."""
    rows = [norm(512, KERNEL, 1.0), norm(512, "fla slow", 2.0), norm(512, "naive", 0.5)]
    rows += [norm(512, "ours (torch)", 0.1, ours=True), norm(512, FLASH, 0.1)]
    rows += [norm(512, "fla broken", 0.1, wrong=True)]
    assert cells(FASTEST, run(*rows)) == ["2.00x (causal, n = 512): met"]
    (skipped,) = (dict(group="norm_attention", contestant="x", skipped="why"),)
    assert cells(FASTEST, run(*rows[:1], skipped)) == ["not measured"]


def test_our_wrong_results_miss():
    rows = [
        norm(512, KERNEL, 1.0, wrong=True),
        norm(512, "fla slow", 2.0),
        norm(512, "naive", 0.5),
    ]
    assert cells(FASTEST, run(*rows)) == ["MISSED: wrong results (causal)"]


def test_the_faster_softmax_counts_from_1024_on():
    rows = [norm(512, KERNEL, 2.0), norm(512, FLASH, 1.0)]
    rows += [norm(1024, KERNEL, 1.0), norm(1024, FLASH, 9.0), norm(1024, CUDNN, 1.0)]
    rows += [norm(8192, KERNEL, 1.0), norm(8192, FLASH, 5.0), norm(8192, CUDNN, 6.0)]
    assert cells("softmax attention, the faster", run(*rows)) == [
        "1.00x (causal, n = 1,024): MISSED"
    ]
    assert cells("the same at n = 8,192", run(*rows)) == [
        "5.00x (causal, n = 8,192): met"
    ]


def test_the_small_published_shape_has_a_time_under_cuda_graphs():
    shape = "published_shapes", str(SMALL), TRAINING, 1024
    rows = [row(*shape, KERNEL, 2e-4), row(*shape, KERNEL, 9.0, timing=LAUNCHED)]
    assert cells(str(SMALL), run(*rows)) == [
        "0.50x (B8 T1024 H8 D64, n = 1,024): MISSED"
    ]
    assert cells(str(SMALL), run(*rows), LAUNCHED) == ["no target"]


def test_shares_of_the_bandwidth():
    """700 of 1,000 bytes a second forward; the rest of 300 bytes in 0.75 s is the
    backward's: 400."""
    where = "linear_attention", "causal"
    rows = [
        row(*where, FORWARD, 4096, KERNEL, 0.25, least=175),
        row(*where, TRAINING, 4096, KERNEL, 1.0, least=475),
        # shorter lengths are not judged
        row(*where, FORWARD, 512, KERNEL, 99.0, least=1),
    ]
    assert cells("causal linear attention alone, ", run(*rows)) == [
        "not measured",
        "70% (causal, n = 4,096): met",
        "40% (causal, n = 4,096): MISSED",
    ]


def test_blocks_are_beside_those_that_a_user_would_take():
    where = "block_attention", "softmax bidirectional", TRAINING, 512
    rows = [row(*where, KERNEL, 1.0), row(*where, "bmm on blocks", 0.5)]
    read = run(*rows, row(*where, "SDPA cuDNN on blocks", 1.4))
    assert cells("block attention, forward", read) == [
        "not measured",
        "1.40x (softmax bidirectional, n = 512): MISSED",
    ]


def test_timings_are_not_mixed():
    rows = [norm(512, KERNEL, 1.0), norm(512, "a", 9.0, timing=LAUNCHED)]
    for timing in (LAUNCHED, GRAPH):
        assert cells(FASTEST, run(*rows), timing) == ["not measured"]


def test_without_a_gpu_nothing_is_judged():
    rows = [norm(512, KERNEL, 1.0), norm(512, "a", 2.0)]
    frame = targets.judged(rows_of(run(*rows, gpu=False)), on_gpu=False)
    assert len(frame) == len(TARGETS)
    assert {*frame[[LAUNCHED, GRAPH]].stack()} == {"not measured (no GPU results)"}


def test_nothing_was_measured():
    skipped = {"group": "rms_norm", "variant": "", "contestant": "x", "skipped": "why"}
    assert "###" not in kernels(run(skipped))


def test_report_of_a_gpu_run():
    """Both timings, wrong and other contestants, and a group without a length."""
    errors = {"forward": 0.5, "gradients": "nan"}
    rows = [
        norm(512, KERNEL, 1e-3, least=1),
        norm(512, KERNEL, 3e-3, least=1, timing=LAUNCHED),
        norm(512, FLASH, 2e-3, timing=LAUNCHED),
        norm(512, "broken", 1e-3, wrong=True, errors=errors),
        row("rms_norm", "", FORWARD, 512, KERNEL, 1e-3, batch=8, timing=LAUNCHED),
    ]
    text = kernels(run(*rows))
    assert "|  | 512, launched | 512, CUDA graph |" in text
    assert "| ours (triton) | 33% (3) | 100% (1) |" in text
    assert "| *SDPA flash* | 5000% (2) | - |" in text
    assert "| broken (WRONG) | 5.0e-01 (0.0e+00) | nan (0.0e+00) | WRONG |" in text
    # 8 x 512 rows
    assert "|  | 4,096 |" in text
    assert text.index("### rms_norm") < text.index("### Targets")


def test_the_page_has_the_runs_of_the_results_folder(tmp_path):
    page = shutil.copy(gpu_runs.PAGE, tmp_path)
    gpu_runs.write(Path(page))
    assert Path(page).read_text() == gpu_runs.PAGE.read_text()


@pytest.mark.parametrize("whole", [False, True], ids=["a file a run", "one file"])
def test_a_run_becomes_a_table(tmp_path, whole):
    measured = run(
        norm(512, KERNEL, 1e-3, least=1),
        norm(512, KERNEL, 2e-3, least=1, timing=LAUNCHED),
        norm(512, "fla peer", 2e-3, least=1, timing=GRAPH),
    )
    measured["settings"] |= {"tokens": 4096, "heads": 8, "head_width": 64}
    measured["settings"] |= {"dtype": "bfloat16"}
    folder = tmp_path / "gpu"
    (folder / "h200").mkdir(parents=True)
    files = {"kernels": measured, "verify": {"rows": []}, "timings": [1.0]}
    if whole:
        (folder / "h200.json").write_text(json.dumps(files))
    else:
        for name, content in files.items():
            (folder / "h200" / f"{name}.json").write_text(json.dumps(content))
    (folder / "README.md").write_text("# Runs\n")
    made = gpu_runs.section(folder)
    assert "| ours (triton) | 50% (2) | 100% (1) |" in made
    assert "2.00x (causal, n = 512): met" in made
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="page.md"):
        gpu_runs.write(page, folder)

"""The reports on the post's claims, from rows whose times follow known laws."""

import pytest

from benchmarks.harness import results
from benchmarks.harness.phases import FORWARD, TRAINING
from benchmarks.linear_transformers import sampling_layer
from benchmarks.linear_transformers.chunk_sizes import OURS, PLAIN
from benchmarks.linear_transformers.linear_attention_forms import (
    BATCH_1,
    SOFTMAX,
    WIDTHS,
)
from benchmarks.report import command as report
from benchmarks.report import linear_transformers, page
from benchmarks.report.tables import rows_of

LENGTHS = (1024, 2048, 4096, 8192, 16384)
# seconds as the post has them: state parallel meets attention parallel at 13,000
LAWS = {
    "attention loop": lambda n, d: 1e-6 * n**2 * d,
    "attention parallel": lambda n, d: 1e-8 * n**2 * d,
    "state loop": lambda n, d: 1.3e-3 * n * d**2 / 64,
    "state parallel": lambda n, d: 1.3e-4 * n * d**2 / 64,
    "chunked": lambda n, d: 1e-7 * n * d**2,
    SOFTMAX: lambda n, d: 1e-9 * n**2 * d,
    "linear_attention (torch)": lambda n, d: 1e-8 * n * d**2,
}
MEMORY = {"attention parallel": 2}


def forms_run(laws):
    rows = []
    for mode in (FORWARD, TRAINING):
        sizes = [(BATCH_1, n, 64) for n in LENGTHS]
        sizes += [(WIDTHS, 2048, d) for d in (16, 32, 64, 128)]
        rows += [
            {
                "sweep": sweep,
                "contestant": name,
                "mode": mode,
                "batch": 1,
                "length": n,
                "width": d,
                "error": 1e-7,
                "peak_bytes": n ** MEMORY.get(name, 1),
                "seconds": [law(n, d)] * 3,
            }
            for name, law in laws.items()
            for sweep, n, d in sizes
        ]
    return run(rows, tokens=16384, chunk_size=64)


def chunks_run(best):
    """Rows of state d^2 + scores c d + sums d^2 / c, with the best c at d = 64."""
    rows = [
        {
            "contestant": contestant,
            "mode": mode,
            "batch": 8,
            "length": 1024,
            "width": d,
            "chunk_size": c,
            "peak_bytes": 1,
            "seconds": [8192 * 1e-9 * (d**2 + c * d + best**2 / 64 * d**2 / c)],
        }
        for contestant in (PLAIN, OURS)
        for mode in (FORWARD, TRAINING)
        for d in (32, 64)
        for c in (8, 16, 32, 64, 128, 256)
    ]
    return run(rows, heads=1, tokens=8192, fixed_chunk_size=64)


def sampling_run():
    laws = {
        sampling_layer.OUR_STATE: lambda n: 1e-4,
        sampling_layer.PLAIN_STATE: lambda n: 5e-5,
        sampling_layer.WRITTEN_CACHE: lambda n: 1e-7 * n,
        sampling_layer.GROWN_CACHE: lambda n: 2e-7 * n,
    }
    rows = [
        {"contestant": name, "context": n, "kept_bytes": n, "seconds": [law(n)] * 2}
        for name, law in laws.items()
        for n in (256, 1024, 4096, 16384)
    ]
    return run(rows)


def run(rows, **settings):
    environment = {"device": "a device", "threads": 1, "torch": "2"}
    return {
        "command": "python -m benchmarks",
        "environment": environment,
        "settings": settings,
        "measurements": rows,
    }


def section(benchmark, made):
    """A section's Markdown, and its tables: first cell -> the others."""
    parts = page.SECTIONS[benchmark].parts(made)
    text = "\n".join(p if isinstance(p, str) else p.markdown() for p in parts)
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return text, {first: rest for first, *rest in lines if rest}


def claims_on_forms(laws):
    return linear_transformers.claims_on_forms(rows_of(forms_run(laws)), 64)


def verdicts(claims):
    return [claim.agrees for claim in claims]


def test_everything_as_the_post_says():
    claims = claims_on_forms(LAWS)
    # our op beats softmax attention from 640 on, so at all of these lengths
    assert verdicts(claims) == [True] * 6 + [None] + [True] * 5
    assert "n = 13000" in claims[7].measured
    assert "100x at n = 16384" in claims[5].measured


def test_nothing_as_the_post_says():
    laws = dict.fromkeys(LAWS, lambda n, d: 1e-6 * n**1.5 * d**1.5)
    laws["state loop"] = lambda n, d: 1e-12 * n**1.5 * d**1.5
    laws[SOFTMAX] = lambda n, d: 1e-9 * n**1.5 * d**1.5
    claims = claims_on_forms(laws)
    assert verdicts(claims) == [False] * 6 + [None] + [False] * 4 + [True]


def test_crossings():
    frame = linear_transformers.crossings(rows_of(forms_run(LAWS)))
    column = frame[f"{BATCH_1}, {FORWARD}"]
    # 1e-7 n 64^2 = 1e-9 n^2 64
    assert column["chunked"] == "n = 6400"
    assert column["attention parallel"] == "not up to n = 16384"


@pytest.mark.parametrize("best, near", [(64, "yes"), (16, "no")])
def test_the_fixed_chunk_size(best, near):
    text, lines = section("chunk_sizes", chunks_run(best))
    verdicts = {first: rest[-1] for first, rest in lines.items()}
    assert verdicts["the chunk size must be set correctly for the best performance"]
    assert verdicts["(this package: 64 is near the best everywhere)"] == near
    line = lines[f"{OURS}, {FORWARD}, n = 1024, d = 64"]
    assert line[:2] == [str(best)] * 2


def test_sampling():
    text, lines = section("sampling_layer", sampling_run())
    assert text.count(" | yes |") == 3
    assert f"| {sampling_layer.OUR_STATE} | n = 1000 | n = 500 |" in text


def test_report_of_a_run_that_was_cut_off(tmp_path):
    made = forms_run(LAWS)
    rows = made.pop("measurements")
    rows[3] = {k: v for k, v in rows[3].items() if k not in ("seconds", "peak_bytes")}
    rows[3] |= {"skipped": "too long"}
    record = results.Record(
        tmp_path / "f.json", benchmark="linear_attention_forms", **made
    )
    record.add(rows[:10])
    record.add(rows[10:70])
    report.main(["--folder", str(tmp_path)])
    readme = (tmp_path / "README.md").read_text()
    assert "cut off" in readme and not (tmp_path / "f.png").exists()
    assert "too long" in readme
    record.add(rows[70:])
    record.finish()
    report.main(["--folder", str(tmp_path)])
    assert "cut off" not in (tmp_path / "README.md").read_text()
    assert len(results.read(tmp_path / "f.json")["measurements"]) == len(rows)

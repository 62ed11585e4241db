"""Least bytes by hand, and the bandwidth of a copy with a clock of our own."""

import pytest
import torch

from benchmarks.harness import cold_cache, roofline
from benchmarks.harness.phases import FORWARD
from benchmarks.kernels import contestants
from benchmarks.kernels.contestants import Case, Setup
from benchmarks.kernels.kernel_measurement import make_call

CPU = torch.device("cpu")
SETUP = Setup(64, 2, 8, 16, "identity", CPU, torch.bfloat16)
GROUPS = {
    (group.name, group.variant): group
    for group in contestants.all_groups(SETUP, [Case(2, 32)], Case(2, 32))
}
X = 64 * 2 * 8 * 2  # bytes of one (B, N, H, D) in bfloat16: B n = 64, 2 heads of 8
ROW = 8 * 2


@pytest.mark.parametrize(
    ("key", "forward", "backward"),
    [
        (("linear_attention", "causal"), 4 * X, 7 * X),
        (("block_attention", "softmax causal"), 4 * X, 7 * X),
        # theta (4) and reflection (8) in float32 are read; theta has a gradient
        (("norm_attention", "causal"), 4 * X + 4 * 12, 7 * X + 4 * 12 + 4 * 4),
        (("rms_norm", ""), 2 * X, 3 * X),
        (("gated_silu", ""), 3 * 64 * 1365 * 2, 5 * 64 * 1365 * 2),
        (("feature_map_and_lrpe", ""), 4 * X + 48, 6 * X + 48 + 16),
    ],
    ids=str,
)
def test_least_bytes(key, forward, backward):
    group = GROUPS[key]
    ours = next(c for c in group.contestants if c.name == "ours (torch)")
    _, sizes = make_call(ours, group.inputs(Case(2, 32)), FORWARD)
    assert sizes == {"forward": forward, "backward": backward}


def test_least_bytes_of_a_step():
    """3 sequences, 2 heads: the 8 x 8 float32 state twice, q, k, v and o once; and
    half a block of 16 keys and values, k and v of the token read and written, q, o."""
    linear = GROUPS["decode_step", "linear attention"].least_bytes(Case(3, 40))
    assert linear == 3 * 2 * (2 * 256 + 4 * ROW)
    block = GROUPS["decode_step", "block attention"].least_bytes(Case(3, 40))
    assert block == 3 * 2 * (8 * 2 * ROW + 6 * ROW)


def test_bandwidth_is_that_of_the_median_copy(monkeypatch):
    monkeypatch.setitem(roofline.BUFFER_BYTES, "cpu", 1000)
    seconds = iter([9, 9, *[0.5] * 11, *[2.0] * 9])
    monkeypatch.setattr(roofline, "seconds_of", lambda *_: next(seconds))
    measured = roofline.copy_bandwidth(CPU)
    assert measured == {"bytes_per_second": 4000, "buffer_bytes": 1000, "copies": 20}


def test_the_flushed_buffer_is_larger_than_the_cache(monkeypatch):
    cache = 2**30
    monkeypatch.setattr(cold_cache, "last_cache_bytes", lambda device: cache)
    assert cold_cache.buffer_bytes(CPU) == 2 * cache
    monkeypatch.setattr(cold_cache, "last_cache_bytes", lambda device: 0)
    assert cold_cache.buffer_bytes(CPU) == cold_cache.SMALLEST["cpu"]


def test_the_cache_of_a_cpu_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(cold_cache, "L3", tmp_path / "size")
    assert cold_cache.last_cache_bytes(CPU) == 0
    (tmp_path / "size").write_text("32768K\n")
    assert cold_cache.last_cache_bytes(CPU) == 32 * 2**20

"""What the kernels that work by rows need of each kind of GPU.

They have no product of tiles, so that GPUs older than Ampere can run them.
"""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
pytest.importorskip("triton")

from fairseq_transnormer.ops.kernels import (  # noqa: E402
    cross_entropy,
    gated_silu,
    lrpe,
    partial_sums,
    residual,
    rms_norm,
)

from .compilation import SHARED_MEMORY, STRIDES, compile_kernel  # noqa: E402

INTEGERS = {
    **dict.fromkeys(["tokens", "length", "heads", "heads_a_program"], "i32"),
    **dict.fromkeys(["positions_stride_b", "positions_stride_n"], "i32"),
    **dict.fromkeys(["count", "inner", "threshold"], "i32"),
    **dict.fromkeys(["rows", "other_rows", "stride", "other_stride"], "i32"),
    "seed": "i64",
}
FLOATS = {
    "eps": "fp32",
    "growth": "fp32",
    **dict.fromkeys(["theta", "reflection"], "*fp32"),
}
POINTERS = {
    "positions": "*i64",
    **dict.fromkeys(["scale", "partial", "other", "other_total"], "*fp32"),
    **dict.fromkeys(["partial_sums", "partial_grad_theta"], "*fp32"),
}


def compiled(kernel, constants, dtype, capability, num_warps=4, strides=()):
    """Pointers are of ``dtype`` but for those whose type is always the same."""
    known = INTEGERS | FLOATS | POINTERS
    known["strides"] = strides
    types = {
        name: known.get(name, f"*{dtype}")
        for name in kernel.arg_names
        if name not in constants
    }
    return compile_kernel(
        kernel,
        types,
        constants,
        capability=capability,
        num_warps=num_warps,
        num_stages=3,
    )


ROWS = {"WIDTH": 512, "ROWS": 8, "COLUMNS": 512}
LRPE = {"PHI": "1+elu", "WIDTH": 64, "BLOCK": lrpe.TILE // 64}
GATE = {"WIDTH": 1368, "STRIDE": 2736, "BLOCK": gated_silu.BLOCK}
HALVES = {
    "WIDTH": 1368,
    "ROWS": gated_silu.ROWS,
    "COLUMNS": gated_silu.COLUMNS,
    "ROWS_A_PROGRAM": gated_silu.ROWS_A_PROGRAM,
}
TOTAL = {"ROWS": partial_sums.ROWS, "COLUMNS": partial_sums.COLUMNS}
# kernel, constants, and how many tensors have strides, of how many dimensions
ALL = {
    "gate": (gated_silu.gate_kernel, GATE, 0, 0),
    "gate backward": (
        gated_silu.gate_backward_kernel,
        {"BLOCK": gated_silu.BLOCK},
        0,
        0,
    ),
    "gate of halves backward": (gated_silu.halves_backward_kernel, HALVES, 0, 0),
    "total": (partial_sums.total_kernel, TOTAL, 0, 0),
    "norm": (rms_norm.norm_kernel, ROWS, 2, 2),
    "norm backward": (rms_norm.norm_backward_kernel, ROWS, 3, 2),
    "residual": (residual.residual_kernel, ROWS | {"DROPS": True}, 4, 2),
    "residual backward": (
        residual.residual_backward_kernel,
        ROWS | {"DROPS": True},
        5,
        2,
    ),
    "lrpe": (lrpe.encode_kernel, LRPE, 4, 3),
    "lrpe backward": (lrpe.encode_backward_kernel, LRPE, 6, 3),
}


def check(result, capability, registers, stack):
    assert result.stack <= stack
    assert result.registers <= registers
    assert result.shared <= SHARED_MEMORY[capability]


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        *((90, "bf16"), (70, "fp16")),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((70, "fp32"), (75, "fp16"), (80, "bf16"), (86, "fp16"))
        ),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_resources(name, dtype, capability):
    kernel, constants, tensors, dimensions = ALL[name]
    strides = (STRIDES[:dimensions],) * tensors
    result = compiled(kernel, constants, dtype, capability, strides=strides)
    # the sums of float32 take what there is: two programs fit on a multiprocessor
    registers = 255 if (name, dtype) == ("lrpe backward", "fp32") else 168
    # the exact reduction of large angles keeps 32 bytes of digits
    check(result, capability, registers, stack=64)
    # 16 bytes at a time
    assert result.instructions["wide loads"] > 0
    if name == "lrpe":
        # a load behind a store waits for it: they might be of the same memory
        ttgir = result.ttgir
        assert ttgir.rindex("tt.load") < ttgir.index("tt.store")


@pytest.mark.parametrize("capability", [90, pytest.param(70, marks=pytest.mark.slow)])
def test_cross_entropy(capability):
    """Whole tiles 16 bytes at a time, what is left one by one."""
    tile, warps = cross_entropy.TILE, cross_entropy.WARPS
    types = {"logits": "*fp16", "targets": "*i64", "losses": "*fp32", "scale": "fp32"}
    integers = dict.fromkeys(["vocabulary", "row_stride", "ignore_index"], "i32")
    result = compile_kernel(
        cross_entropy.cross_entropy_kernel,
        types | integers,
        {"TILE": tile, "WITH_GRADIENT": True},
        capability=capability,
        num_warps=warps,
        num_stages=3,
    )
    check(result, capability, registers=64, stack=0)
    elements = tile // (32 * warps)
    assert result.instructions["wide loads"] == 2 * elements // 8
    assert result.instructions["wide stores"] == elements // 8

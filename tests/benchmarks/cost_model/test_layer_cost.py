"""Launches and bytes of a layer, and shares of a step, by hand."""

import json

import pytest
import torch
from pandas import DataFrame
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.cost_model import layer_cost, step_profile
from benchmarks.cost_model.layer_cost import BACKWARD, FORWARD
from benchmarks.cost_model.machines import GOOD, machine_of
from benchmarks.cost_model.on_a_gpu import as_on_a_gpu
from benchmarks.cost_model.traced import trace
from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.cross_entropy import cross_entropy_in_place

pytest.importorskip("triton")


def rows():
    """(B, N, D) in bfloat16 with a gradient, 2 x 3 x 32 x 2 bytes."""
    return torch.empty(2, 3, 32, dtype=torch.bfloat16, requires_grad=True)


def test_launches_of_an_op_are_counted_and_not_its_operator():
    """The norm reads x and writes y and 1 / RMS, backwards the same and grad."""
    size, scale = 2 * 3 * 32 * 2, 2 * 3 * 4
    with as_on_a_gpu():
        x, outputs = rows(), []
        forward = trace(lambda: outputs.append(ops.rms_norm(x, backend="triton")))
        grad = torch.empty_like(x)
        backward = trace(lambda: outputs[0].backward(grad))
    assert [(k["name"], k["bytes"]) for k in forward.kernels] == [
        ("norm_kernel", 2 * size + scale)
    ]
    assert [(k["name"], k["bytes"]) for k in backward.kernels] == [
        ("norm_backward_kernel", 3 * size + scale)
    ]


def test_torchs_operations_in_an_op_are_counted_beside_the_launches():
    """LRPE sums up its programs' gradients of theta."""
    with as_on_a_gpu():
        q, k = (torch.empty(2, 3, 4, 32, requires_grad=True) for _ in "qk")
        theta = torch.empty(16, requires_grad=True)
        others = torch.empty(32), torch.arange(3)
        y = ops.lrpe(q, k, theta, *others, backend="triton")[0]
        grad = torch.empty_like(y)
        names = [k["name"] for k in trace(lambda: y.backward(grad)).kernels]
    # the key's gradient did not arrive
    assert names == ["zeros_like", "encode_backward_kernel", "sum"]


def test_dropout_is_one_kernel():
    """It reads x and writes y and a byte an element, which is read backwards."""
    with as_on_a_gpu():
        x, outputs = rows(), []
        dropout = torch.nn.functional.dropout
        forward = trace(lambda: outputs.append(dropout(x, 0.1, True)))
        grad = torch.empty_like(x)
        backward = trace(lambda: outputs[0].backward(grad))
    for counted in (forward, backward):
        assert [k["bytes"] for k in counted.kernels] == [5 * x.numel()]


def test_logits_are_moved_three_times():
    """Read for the sum and for the gradient, which is written over them."""
    with as_on_a_gpu():
        logits = torch.empty(3, 50, dtype=torch.bfloat16)
        targets = torch.zeros(3, dtype=torch.long)
        (kernel,) = trace(
            lambda: cross_entropy_in_place(logits, targets, backend="auto")
        ).kernels
    assert kernel["name"] == "cross_entropy_kernel"
    assert kernel["bytes"] == 3 * logits.nbytes + targets.nbytes + 3 * 4


def test_a_chunks_gradients_are_added_by_products_of_halves():
    """Into float32 sums, which alone are wide; nothing is converted before."""
    with as_on_a_gpu():
        x, weight = (
            torch.empty(n, 64, dtype=torch.bfloat16, requires_grad=True)
            for n in (30, 500)
        )
        targets = torch.zeros(30, dtype=torch.long)
        kernels = trace(lambda: ops.linear_cross_entropy(x, weight, targets)).kernels
    products = [k for k in kernels if k["flops"]]
    logits, sizes = 30 * 500 * 2, (30 * 64, 500 * 64)
    expected = [2 * sum(sizes) + logits]
    for other, total in (sizes[::-1], sizes):
        expected.append(logits + 2 * other + 8 * total)
    assert [k["bytes"] for k in products] == expected
    assert not any(k["single"] for k in products)


@pytest.mark.parametrize(
    ("dtype", "products", "taken"),
    [
        (torch.bfloat16, True, {True: True, False: True}),
        (torch.float16, False, {True: False, False: True}),
        # no TF32
        (torch.float32, True, {True: False, False: True}),
    ],
)
def test_what_auto_takes(dtype, products, taken):
    with as_on_a_gpu(products):
        x = (torch.empty(2, dtype=dtype),)
        for multiplies, expected in taken.items():
            kernels = backend.Kernels("op", products=multiplies)
            assert (backend.why_auto_avoids_triton(x, kernels) is None) == expected
        wide = backend.Kernels("op", widths=(48,), products=False)
        assert backend.why_auto_avoids_triton(x, wide)


def test_without_the_mode_nothing_is_patched():
    with FakeTensorMode(), pytest.raises(ValueError, match="CUDA"):
        ops.rms_norm(torch.empty(2, 32), backend="triton")


@pytest.mark.parametrize("kind", ["norm", "diag"])
def test_products_of_a_layer(kind):
    """Whoever computes the rest: 4 d^2 + 3 d f weights, forward and twice backward."""
    sizes = {"embed_dim": 64, "num_heads": 2, "ffn_dim": 168}
    weights, tokens = 4 * 64**2 + 3 * 64 * 168, 2 * 128
    kernels = layer_cost.layer_cost(kind, "triton", 2, 128, **sizes)
    for phase, factor in ((FORWARD, 2), (BACKWARD, 4)):
        assert kernels[phase].flops.sum() == factor * weights * tokens


def test_triton_launches_less_and_moves_less():
    backends = "torch", "triton", layer_cost.V100
    passes = [layer_cost.layer_cost("norm", b, 2, 128) for b in backends]
    torchs, tritons, mixed = ([len(x[p]) for p in (FORWARD, BACKWARD)] for x in passes)
    assert all(ours < theirs / 2 for ours, theirs in zip(tritons, torchs, strict=True))
    assert sum(tritons) < sum(mixed) < sum(torchs) / 2
    torchs, tritons, mixed = (sum(x[p].bytes.sum() for p in x) for x in passes)
    assert tritons < torchs / 2 and tritons < mixed < torchs


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "layers.json"
    layer_cost.main(["--kinds", "norm", "--batch", "2", "--output", str(path)])
    assert str(path) in capsys.readouterr().out
    run = json.loads(path.read_text())
    assert run["benchmark"] == layer_cost.NAME and "--batch 2" in run["command"]
    for row in run["measurements"]:
        launches = sum(launches for launches, _ in row["kernels"].values())
        assert launches == row["launches"]


def test_a_kernel_takes_the_longest_of_its_three():
    machine = machine_of(step_profile.MACHINE, GOOD)
    kernels = DataFrame(
        {
            "name": ["product", "copy", "small"],
            "flops": [2 * machine.flops, 0.0, 0.0],
            "bytes": [machine.memory, 3 * machine.memory, 1.0],
            "single": [False, False, True],
        }
    )
    seconds = step_profile.seconds_of(kernels)
    assert list(seconds) == pytest.approx([2.0, 3.0, machine.launch])


def test_the_command(tmp_path, capsys):
    path = tmp_path / "steps.json"
    name = "LRA text, 16 x 4,096"
    step_profile.main(["--steps", name, "--output", str(path)])
    before, after = json.loads(path.read_text())["measurements"]
    assert (before["way"], after["way"]) == ("before", "after")
    assert after["kernels"] < before["kernels"]
    assert after["milliseconds"] < before["milliseconds"]
    for row in (before, after):
        assert 0 < row["products"] < 1 and 0 <= row["launches"] < 1
        shares = [share for _, share in row["largest"].values()]
        assert shares == sorted(shares, reverse=True) and sum(shares) < 1
    # nothing of building the model is counted
    assert "uniform_" not in after["largest"]
    assert name in capsys.readouterr().out

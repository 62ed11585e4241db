"""float16 and bfloat16 stay near float64 at the paper's length and head width."""

import copy

import torch

from .cases import (
    ALL,
    CAUSAL,
    UNBOUNDED,
    WITHOUT_CHOICES,
    all_cases,
    draw,
    in_turn,
    over,
)

HALVES = (torch.float16, torch.bfloat16)
LENGTH, WIDTH = 512, 128
WIDE = {
    "embed_dim": WIDTH,
    "ffn_dim": WIDTH,
    "block_size": 64,
    "bigbird_block_size": 64,
    "nystromformer_landmarks": 128,
    "skyformer_landmarks": 128,
}
# bfloat16 keeps 8 bits and float16 11
OUTPUT_ERROR = {torch.float16: 0.005, torch.bfloat16: 0.04}
GRADIENT_ERROR = {torch.float16: 0.02, torch.bfloat16: 0.12}
# ReLU sums next to zero are divided by their RMS: gradients hang on the last bits
STEEP = {"diag t1": 6.0}


def wide_layer(case, causal):
    layer = case.layer(causal, **WIDE, **WITHOUT_CHOICES.get(case.name, {}))
    if case.name == "reformer":
        # all tokens are hashed alike
        layer.rotations.directions.zero_()
    return layer


def error(value, expected):
    return ((value - expected).norm() / expected.norm()).item()


@in_turn("dtype", HALVES)
def test_outputs_and_gradients_at_512_tokens(case, causal, dtype):
    wide = wide_layer(case, causal).float()
    half = copy.deepcopy(wide).to(dtype)
    wide = wide.double()
    # the one whose cost grows with the square of what leaves it no choice
    length = 256 if case.name == "reformer" else LENGTH
    x = draw(2, length, width=WIDTH).to(dtype)
    pads = torch.zeros(2, length, dtype=torch.bool)
    pads[1, length - 200 :] = True
    weight = draw(2, length, width=WIDTH).masked_fill(pads[..., None], 0)
    results = []
    for layer, given in ((wide, x.double()), (half, x.clone())):
        given.requires_grad_()
        y = layer(given, pads)[0]
        assert y.dtype == given.dtype
        (gradient,) = torch.autograd.grad((y.double() * weight).sum(), given)
        results.append((y.detach()[~pads].double(), gradient[~pads].double()))
    (y, gradient), (half_y, half_gradient) = results
    assert error(half_y, y) < OUTPUT_ERROR[dtype]
    allowed = GRADIENT_ERROR[dtype] * STEEP.get(case.label, 1)
    assert error(half_gradient, gradient) < allowed


@over([pair for pair in ALL if pair[0].label not in UNBOUNDED])
def test_large_and_small_activations(case, causal):
    """Sums far beyond 65,504, scores far beyond what exp takes, and next to nothing.

    Of float16 alone: bfloat16 has the range of float32. Outputs of UNBOUNDED grow with
    the length, as documented.
    """
    layer = case.layer(causal, **WIDE).half()
    for scale, length in ((30.0, LENGTH), (1e-3, LENGTH // 4)):
        x = (scale * draw(1, length, width=WIDTH)).half().requires_grad_()
        y = layer(x)[0]
        layer.zero_grad()
        y.float().mean().backward()
        assert y.isfinite().all() and x.grad.isfinite().all()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all(), name


@in_turn("dtype", HALVES, ALL[: len(CAUSAL)])
@torch.no_grad()
def test_steps_in_half_precision(case, causal, dtype):
    layer = wide_layer(case, causal).to(dtype)
    x = draw(1, 72, width=WIDTH).to(dtype)
    y, state = layer(x[:, :60], return_state=True)
    outputs = [y]
    for token in x[:, 60:].split(1, dim=1):
        y, state = layer(token, state=state, return_state=True)
        outputs.append(y)
    steps, whole = torch.cat(outputs, 1), layer(x)[0]
    assert error(steps.float(), whole.float()) < OUTPUT_ERROR[dtype]


@all_cases
def test_autocast_to_bfloat16(case, causal):
    layer = wide_layer(case, causal).float()
    x = draw(1, 130, width=WIDTH).float().requires_grad_()
    expected = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)[0]
    assert error(y.float(), expected) < OUTPUT_ERROR[torch.bfloat16]
    y.float().sum().backward()
    assert x.grad.isfinite().all()

"""What each op must satisfy, stated once, and run for every backend.

A law is a function of a place (backend and device), the name of an op (registered.py)
and the sizes and options of a case. test_laws.py runs it with torch,
interpreter/test_laws.py with Triton's interpreter, tests/gpu/test_laws.py on a GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops.trials import Slack, judge, slack_of

from . import equations
from .drawing import relative_error
from .registered import OPS, Op, sums_dtype
from .splits import ragged_part, split


@dataclass(frozen=True)
class Place:
    """Where laws are run.

    Attributes:
        tolerances: relative errors of results, by dtype; twice as large of gradients.
            Without them results have to be as good as torch's, as in a trial.
        width: of heads, where a case does not say.
        products: whether float32 is multiplied in TF32, where kernels may.
    """

    backend: str
    width: int
    device: str = "cpu"
    tolerances: Mapping[torch.dtype, float] = field(default_factory=dict)
    products: bool = True

    def draw(self, op: Op, dtype: torch.dtype, **case) -> tuple[list, dict]:
        """Tensors and options of a case; its numbers do not depend on the dtype."""
        tensors, options = op.draw(**({"width": self.width} | case))
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        first = len(tensors) - op.kept
        tensors = [
            x.to(self.device, dtype if i < first else kept)
            for i, x in enumerate(tensors)
        ]
        options = {
            name: x.to(self.device) if isinstance(x, torch.Tensor) else x
            for name, x in options.items()
        }
        return tensors, options

    def compare(self, op, dtype, options, computed, exact, peer) -> None:
        """Assert that results and gradients are right.

        Args:
            computed, exact: (name, tensor) of each.
            peer: () -> torch's.
        """
        if self.tolerances:
            for (name, x), (_, wanted) in zip(computed, exact, strict=True):
                is_sum = name == "result 0" and op.sums(dtype, options)
                is_sum &= not (op.halves and self.backend == "triton")
                tolerance = op.slack * self.tolerances[x.dtype if is_sum else dtype]
                tolerance *= 1 + name.startswith("gradient")
                found = error(x, wanted)
                assert found < tolerance, f"{name}: {found:.2g}"
            return
        cut = self.products and op.products(dtype, options)
        slack = Slack(1e-5, 1e-5) if op is OPS["cross_entropy"] else None
        results = zip(computed, peer(), exact, strict=True)
        for (name, x), (_, other), (_, wanted) in results:
            judge(x, other, wanted, slack or slack_of(dtype, products=cut), name)


BFLOAT16, FLOAT16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32
DTYPES = (FLOAT32, BFLOAT16, FLOAT16)
# output rounding alone gives 2^-9 (bfloat16) and 2^-12 (float16) on average less
BY_TORCH = {torch.float64: 1e-12, FLOAT32: 1e-6, BFLOAT16: 3e-3, FLOAT16: 4e-4}
# bfloat16 is cut off where a GPU rounds
INTERPRETED = {FLOAT32: 1e-5, FLOAT16: 1e-3, BFLOAT16: 1e-2}
TORCH = Place("torch", 4, tolerances=BY_TORCH)
REFERENCE = Place("reference", 4, tolerances=BY_TORCH)
INTERPRETER = Place("triton", 32, tolerances=INTERPRETED)
GPU = Place("triton", 64, "cuda")


def error(value, expected) -> float:
    """Relative, but where nothing is expected."""
    if expected.norm() < 1e-9:
        return value.double().norm().item()
    return relative_error(value, expected)


def results(function, tensors, **options):
    """(name, tensor) of every result, and gradients of a loss over all of them.

    The loss is the same in each dtype, and reads tensors as they are strided.
    """
    leaves = [x.detach().requires_grad_() for x in tensors]
    outputs = function(*leaves, **options)
    generator = torch.Generator().manual_seed(1)
    loss = 0
    for x in outputs:
        weight = torch.randn(x.shape, generator=generator).bfloat16()
        if x.requires_grad:
            loss = loss + (x * weight.to(x.device, x.dtype)).sum()
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    found = [(f"result {i}", x.detach()) for i, x in enumerate(outputs)]
    return found + [(f"gradient {i}", x) for i, x in enumerate(gradients)]


def wide(tensors):
    return [x.double() for x in tensors]


def assert_same_bits(first, second):
    for (name, one), (_, other) in zip(first, second, strict=True):
        assert torch.equal(one, other), name


# The laws


def equation(
    place: Place, name: str, dtype=torch.float64, view=None, only=None, **case
):
    """Results and gradients are the equation's, in the inputs' dtype.

    view: of the tensors, which must not matter. only: the index of the one result that
    the loss reads.
    """
    op = OPS[name]
    tensors, options = place.draw(op, dtype, **case)
    tensors = view(tensors) if view else tensors
    call, exactly = (_part_of(f, only) for f in (op.call, op.equation))
    computed = results(call, tensors, backend=place.backend, **options)
    if place.tolerances:
        exact = results(exactly, wide(tensors), **options)
    else:
        exact = results(call, wide(tensors), backend="torch", **options)
    wanted = FLOAT32 if op.sums(dtype, options) else dtype
    assert computed[0][1].dtype == wanted
    assert [x.shape for _, x in computed] == [x.shape for _, x in exact]
    peer = partial(results, call, tensors, backend="torch", **options)
    place.compare(op, dtype, options, computed, exact, peer)


def _part_of(function, only):
    if only is None:
        return function
    return lambda *tensors, **options: (function(*tensors, **options)[only],)


VIEWS = {
    # fairseq's T x B x C
    "tokens first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "heads first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "width outside": lambda x: x.mT.contiguous().mT,
    "half of a row": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "one row": lambda x: x[:1].expand_as(x),
    "one token": lambda x: x[:1, :1].expand_as(x),
    "windows": lambda x: x.as_strided(x.shape, (*x.stride()[:-2], 1, 1)),
}


def layouts(place: Place, name: str, dtype=torch.float32, **case):
    """Strides do not matter: each of VIEWS is some tensor's."""
    views = list(VIEWS.values())
    inputs = [x for x in place.draw(OPS[name], dtype, **case)[0] if x.dim() > 2]
    for shift in range(0, len(views), min(len(inputs), 2)):

        def view(tensors, shift=shift):
            return [
                views[(shift + i) % len(views)](x) if x.dim() > 2 else x
                for i, x in enumerate(tensors)
            ]

        equation(place, name, dtype, view, **case)


def layout_is_kept(place: Place, name: str, **case):
    """What follows reads it as (N, B, ...), without a copy."""
    tensors, options = place.draw(OPS[name], FLOAT32, **case)
    tensors = [VIEWS["tokens first"](x) if x.dim() > 2 else x for x in tensors]
    for output in OPS[name].call(*tensors, backend=place.backend, **options):
        assert output.transpose(0, 1).is_contiguous()


def same_bits(place: Place, name: str, dtype=torch.bfloat16, **case):
    """A second run gives them."""
    op = OPS[name]
    tensors, options = place.draw(op, dtype, **case)
    call = partial(results, op.call, tensors, backend=place.backend, **options)
    assert_same_bits(call(), call())


def autocast_changes_nothing(place: Place, name: str, dtype=torch.bfloat16, **case):
    """Sums of float32 stay in float32."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)

    def under_autocast(*tensors, **options):
        with torch.autocast(place.device, dtype):
            # a matrix product beside the op is cast: the context is at work
            assert (tensors[0] @ tensors[0].mT).dtype == dtype
            return op.call(*tensors, **options)

    options["backend"] = place.backend
    plain = results(op.call, tensors, **options)
    assert_same_bits(plain, results(under_autocast, tensors, **options))


def compiles(place: Place, name: str, compiler="aot_eager", **case):
    """torch.compile takes one graph, which computes the same."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)
    torch.compiler.reset()
    call = partial(op.call, backend=place.backend, **options)
    compiled = torch.compile(call, backend=compiler, fullgraph=True)
    computed, expected = (results(f, tensors) for f in (compiled, call))
    # a compiled residual connection is torch's
    if place.backend == "triton" and name != "residual":
        assert_same_bits(computed, expected)
        strides = [[x.stride() for _, x in each] for each in (computed, expected)]
        assert strides[0] == strides[1]
    for (_, one), (_, other) in zip(computed, expected, strict=True):
        torch.testing.assert_close(one, other)


def finite_differences(place: Place, name: str, **case):
    """Gradients in float64 are those of small steps."""
    tensors, options = place.draw(OPS[name], torch.float64, **case)
    call = partial(OPS[name].call, backend=place.backend, **options)
    leaves = [x.requires_grad_() for x in tensors]
    assert torch.autograd.gradcheck(
        lambda *t: [x for x in call(*t) if x.requires_grad], leaves
    )


def one_gradient_alone(place: Place, name: str, **case):
    """Of each tensor it is what it is beside the others'; they get none."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)
    options["backend"] = place.backend
    everything = dict(results(op.call, tensors, **options))
    for wanted in range(len(tensors)):

        def call(leaf, wanted=wanted, **options):
            given = [x.detach() for x in tensors]
            given[wanted] = leaf
            return op.call(*given, **options)

        alone = dict(results(call, [tensors[wanted]], **options))
        torch.testing.assert_close(
            alone["gradient 0"], everything[f"gradient {wanted}"]
        )


class _NoGradient(torch.autograd.Function):
    """The sum; autograd hears of no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return None


def no_gradient_arrives(place: Place, name: str, **case):
    """What follows may give none back: then the inputs get none, or zeros."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)
    leaves = [x.requires_grad_() for x in tensors]
    for result in op.call(*leaves, backend=place.backend, **options):
        _NoGradient.apply(result).backward(retain_graph=True)
    assert all(x.grad is None or not x.grad.any() for x in leaves)


def no_rows(place: Place, name: str, **case):
    """As the last rank of a training has, where the data do not go round."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)
    leaves = [(x[:0] if x.dim() > 2 else x).requires_grad_() for x in tensors]
    if "key_padding_mask" in options:
        options["key_padding_mask"] = options["key_padding_mask"][:0]
    full = op.call(*tensors, backend=place.backend, **options)
    outputs = op.call(*leaves, backend=place.backend, **options)
    sum(x.sum() for x in outputs).backward()
    for output, other in zip(outputs, full, strict=True):
        assert output.shape == (0, *other.shape[1:])
    assert all(x.grad is None or not x.grad.any() for x in leaves)
    assert leaves[0].grad.shape == leaves[0].shape


def pads_do_not_leak(place: Place, name: str, dtype=torch.float32, **case):
    """Whatever stands there, results and gradients have the same bits."""
    op = OPS[name]
    (query, key, value), options = place.draw(op, dtype, pads=True, **case)
    mask = options["key_padding_mask"]
    pads = mask[..., None, None]
    found = []
    poisons = torch.tensor([torch.nan, torch.inf, -torch.inf, 3e4])
    poisons = poisons.repeat(key.shape[-1] // 4).to(place.device, dtype)
    for filler in (torch.zeros_like(poisons), poisons):
        tensors = query, *(torch.where(pads, filler, x) for x in (key, value))
        found.append(results(op.call, tensors, backend=place.backend, **options))
    assert_same_bits(*found)
    assert all(x.isfinite().all() for _, x in found[0])
    for _, gradient in found[0][-2:]:
        assert (gradient[mask] == 0).all()
    if len(mask) > 2:
        # a row of pads alone
        assert (found[0][0][1][-1] == 0).all()


def the_future_is_hidden(place: Place, name: str, changed_from, **case):
    """Later tokens leave earlier outputs untouched."""
    op = OPS[name]
    tensors, options = place.draw(op, FLOAT32, **case)
    options["backend"] = place.backend
    (output,) = op.call(*tensors, **options)
    for j in changed_from:
        changed = [x.clone() for x in tensors]
        for x in changed:
            x[:, j:] = torch.randn_like(x[:, j:])
        (after,) = op.call(*changed, **options)
        assert torch.equal(after[:, :j], output[:, :j])
        assert not torch.equal(after[:, j], output[:, j])


def in_parts(op, lengths, backend):
    """A function as ``op.call``, of parts of a sequence, and the states behind them."""
    function = ops.linear_attention if op is OPS["linear"] else ops.block_attention
    states = []

    def call(*tensors, **options):
        outputs, state = [], None
        for part in split(tensors, lengths):
            output, state = function(
                *part, **options, backend=backend, initial_state=state,
                return_state=True,
            )  # fmt: skip
            outputs.append(output)
            states.append(state)
        return (torch.cat(outputs, 1),)

    return call, states


def parts(place: Place, name: str, lengths, dtype=FLOAT32, gradients=True, **case):
    """Any split of a sequence equals one call, in either mode.

    gradients: whether those are looked at, too.
    """
    op = OPS[name]
    tensors, options = place.draw(op, dtype, length=sum(lengths), **case)
    call, states = in_parts(op, lengths, place.backend)
    if place.tolerances:
        exact = results(op.equation, wide(tensors), **options)
    else:
        exact = results(op.call, wide(tensors), backend="torch", **options)
    compare = partial(place.compare, op, dtype, options)
    if gradients:
        computed = results(call, tensors, **options)
        peer = partial(results, op.call, tensors, backend="torch", **options)
        compare(computed, exact, peer)
        states.clear()
    with torch.no_grad():
        computed = [("result 0", *call(*tensors, **options))]
        peer = op.call(*tensors, backend="torch", **options)
    compare(computed, exact[:1], lambda: [("result 0", *peer)])
    assert (states[-1].length == sum(lengths)).all()
    assert len({ops.state_bytes(state) for state in states}) == 1
    for found, expected in op.state(states[-1], *tensors, **options):
        if name == "linear":
            assert found.dtype == sums_dtype(tensors[0])
            if place.tolerances:
                exactly = 1e-12 if dtype == torch.float64 else 1e-5
                assert error(found, expected) < exactly
        else:
            assert torch.equal(found, expected)


@torch.no_grad()
def ragged_parts(place: Place, name: str, counts, **case):
    """Rows continue from their own lengths; what stands at pads is not seen."""
    op, totals = OPS[name], torch.tensor(counts).sum(0)
    length, starts, state = max(int(totals.max()), 1), [0] * len(totals), None
    dtype = FLOAT32 if place.backend == "triton" else torch.float64
    tensors, options = place.draw(op, dtype, length=length, batch=len(totals), **case)
    function = ops.linear_attention if name == "linear" else ops.block_attention
    (expected,) = op.equation(*wide(tensors), **options)
    close = {"rtol": 1e-5, "atol": 1e-4 if dtype == FLOAT32 else 1e-8}
    for part in counts:
        given, mask = ragged_part(tensors, starts, part)
        output, state = function(
            *given, **options, key_padding_mask=mask, initial_state=state,
            return_state=True, backend=place.backend,
        )  # fmt: skip
        for b, (start, count) in enumerate(zip(starts, part, strict=True)):
            wanted = expected[b, start : start + count]
            torch.testing.assert_close(output[b, :count].double(), wanted, **close)
        starts = [s + c for s, c in zip(starts, part, strict=True)]
    assert state.length.tolist() == totals.tolist()


def sums_beyond_float16(place: Place, causal: bool):
    """130 tokens, each with a score of 64 products of 1,024, times 32."""
    x = torch.full((1, 130, 1, 64), 32.0, dtype=FLOAT16, device=place.device)
    options = {"causal": causal, "backend": place.backend}
    output = ops.linear_attention(x, x, x, **options)[0]
    assert output[0, -1, 0, 0] == 130 * 65_536 * 32 > torch.finfo(FLOAT16).max
    if place.backend != "triton":
        average = ops.linear_attention(x, x, x, **options, normalize=True)[0]
        assert (average == 32).all() and average.dtype == FLOAT16


def blocks_beyond_float16(place: Place, causal: bool):
    """Scores of 64 * 100 * 100 / 8 = 80,000."""
    x = torch.full((1, 64, 1, 64), 100.0, dtype=FLOAT16, device=place.device)
    options = {"block_size": 64, "causal": causal, "backend": place.backend}
    average = ops.block_attention(x, x, x, activation="softmax", **options)[0]
    assert average.dtype == FLOAT16 and (average == 100).all()
    total = ops.block_attention(x, x, x, activation="relu", **options)[0]
    assert total[0, -1, 0, 0] == 64 * 80_000 * 100


def norms_of_any_size(place: Place):
    """The sum of squares leaves float16's range upwards and downwards."""
    for dtype in DTYPES:
        for scale in (1e-3, 1.0, 1e4):
            x = (scale * torch.randn(6, 512, device=place.device)).to(dtype)
            output = ops.rms_norm(x, backend=place.backend)
            assert output.dtype == dtype and output.isfinite().all()
            expected = equations.rms_norm(x, eps=1e-8)
            assert error(output, expected) < place.tolerances[dtype]
        x = torch.zeros(2, 8, dtype=dtype, requires_grad=True)
        output = ops.rms_norm(x, backend=place.backend)
        (output * 1e-3).sum().backward()
        assert (output == 0).all() and x.grad.isfinite().all()


def gates_open_and_close(place: Place):
    """Far from 0, in both directions."""
    for dtype in DTYPES:
        gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], dtype=dtype)
        value = torch.full_like(gate, 2.0).requires_grad_()
        gate.requires_grad_()
        output = ops.gated_silu(gate, value, backend=place.backend)
        expected = torch.tensor([0.0, 0.0, 0.0, 200.0, 2e4], dtype=dtype)
        torch.testing.assert_close(output, expected)
        output.sum().backward()
        for x, wanted in (gate, [0, 0, 1, 2, 2]), (value, [0, 0, 0, 100, 1e4]):
            torch.testing.assert_close(x.grad, torch.tensor(wanted, dtype=dtype))

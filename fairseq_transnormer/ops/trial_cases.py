"""What kernels are tried on: inputs of each op, and how it is called with them.

Each op has a function (options, dtype, device) that yields cases. They launch the
kernels that a configuration stands for. The last tile of one is not full; another has
more programs than the device runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .block_attention import block_attention
from .block_attention.options import output_dtype
from .cross_entropy import cross_entropy_in_place
from .gated_linear_unit import gated_linear_unit
from .gated_silu import gated_linear, gated_silu
from .linear_attention import linear_attention
from .lrpe import lrpe
from .residual import dropout_add, dropout_add_norm, norm_with_residual
from .rms_norm import rms_norm
from .states import BlockAttentionState, LinearAttentionState

# TF32 has ten bits. Triton cuts a float32 off there, always downwards: errors of two
# products in a row add up. A float16 is exact in TF32.
TF32_CUT = {torch.float32: 2.0**-9, torch.float16: 2.0**-10, torch.bfloat16: 0.0}
# of the trials
DROPOUT_P = 0.25


class Mismatch(Exception):
    """A kernel's numbers are wrong; the message says by how much."""


class Case(NamedTuple):
    """Inputs of an op, and how it is called.

    Attributes:
        inputs: float32 tensors, which are rounded to the dtype under trial.
        wide: those that stay in float32, such as states.
        call: (list of all, backend) to the tuple of outputs. In the run that the others
            are judged by, all are float64.
        differentiable: whether gradients are judged too.
        fixed: further inputs in float32 that get no gradient, the last of all.
    """

    inputs: Sequence[Tensor]
    call: Callable[[list[Tensor], str], tuple[Tensor, ...]]
    wide: Sequence[Tensor] = ()
    differentiable: bool = True
    fixed: Sequence[Tensor] = ()


def draw(*shapes: Sequence[int], device: torch.device, seed: int = 1) -> list[Tensor]:
    """Normal numbers in float32, which leave everybody's generator as it was."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float32).to(device)
        for shape in shapes
    ]


def pads_of(batch: int, length: int, device: torch.device) -> Tensor:
    """bool (B, N): every fifth token, the last quarter of every second row from the
    first on, and all of the third row."""
    token = torch.arange(length, device=device)
    row = torch.arange(batch, device=device)[:, None]
    pads = (row * length + token) % 5 == 0
    pads = pads | ((row % 2 == 0) & (token >= length - length // 4))
    return pads | (row == 2)


def placed(x: Tensor, aligned: bool) -> Tensor:
    """x, or a copy at addresses and strides that Triton takes for unaligned."""
    if aligned:
        return x
    room = x.new_zeros(x[..., 0].numel() * (x.shape[-1] + 1) + 1)
    rows = room[1:].view(*x.shape[:-1], x.shape[-1] + 1)
    return rows[..., :-1].copy_(x)


def programs_at_once(device: torch.device) -> int:
    """More programs of a kernel than the device's multiprocessors run at one time.

    Few in the interpreter, which runs one after the other.
    """
    if device.type != "cuda":
        return 3
    return 12 * torch.cuda.get_device_properties(device).multi_processor_count


def seeded(
    function: Callable[..., Any], *arguments: Any, seed: int = 1, **keywords: Any
) -> Any:
    """What a function returns that draws its seed from torch's CPU generator.

    That generator and those of GPUs stay as they are.
    """
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        return function(*arguments, **keywords)
    finally:
        generator.set_state(before)


def check_factors(
    found: Tensor,
    others: Tensor,
    dropout_p: float,
    neighbours: Mapping[str, int],
    *,
    used: Tensor | None = None,
    rounding: float = 1e-5,
) -> None:
    """Whether dropout is what it should be, for two seeds.

    Args:
        found, others: what a kernel multiplies by, by one seed and by another.
        dropout_p: how often that should be 0.
        neighbours: names of dimensions, in which neighbours must be independent.
        used: where there are factors; None for everywhere.
        rounding: relative, of what is kept.

    Raises:
        Mismatch: the factors are not 0 or 1 / (1 - p), or not as often as they should.
            Or they are not drawn anew for another seed, or depend on their neighbours.
    """
    if used is None:
        used = torch.ones_like(found, dtype=torch.bool)
    kept = found > 0
    wrong = (found[kept & used] * (1 - dropout_p) - 1).abs().amax()
    if not wrong < rounding:
        raise Mismatch("dropout does not multiply what it keeps by 1 / (1 - p)")
    agreeing = dropout_p**2 + (1 - dropout_p) ** 2
    shares = [
        ("keeps", kept, used, 1 - dropout_p),
        ("agrees with another seed in", kept == (others > 0), used, agreeing),
    ]
    for name, dim in neighbours.items():
        pairs = found.shape[dim] - 1
        (one, other), (there, and_there) = (
            (x.narrow(dim, 0, pairs), x.narrow(dim, 1, pairs)) for x in (kept, used)
        )
        what = f"agrees with the next {name} in"
        shares.append((what, one == other, there & and_there, agreeing))
    for what, share, where, expected in shares:
        share = share[where]
        measured = float(share.double().mean())
        spread = (expected * (1 - expected) / share.numel()) ** 0.5
        if not abs(measured - expected) < 6 * spread:
            raise Mismatch(f"dropout {what} {measured:.3f}, not {expected:.3f}")


def _linear_attention(options, dtype, device):
    # imported where Triton is there
    from .linear_attention.launch_table import FORMS, sizes_of_form

    form = options["form"]
    widths = options["width"], options["width"], options["value_width"]
    causal, normalize = form != "bidirectional", options.get("normalize", False)
    continued, returned = options.get("continued"), options.get("returned")
    known = {
        "causal": causal,
        "feature_map": options["feature_map"],
        "normalize": normalize,
    }

    def called(inputs, backend, **keywords):
        key = inputs[1]
        if options["padded"]:
            keywords["key_padding_mask"] = pads_of(*key.shape[:2], device)
        if len(inputs) > 3:
            length = torch.arange(len(key), device=device)
            sums = [*(x.clone() for x in inputs[3:]), None][:2]
            keywords["initial_state"] = LinearAttentionState(*sums, length)
        return linear_attention(*inputs[:3], backend=backend, **known, **keywords)

    def output_alone(inputs, backend):
        return called(inputs, backend, return_state=bool(returned))[:1]

    def output_and_sums(inputs, backend):
        output, state = called(inputs, backend, return_state=True)
        return output, *(x for x in state[:2] if x is not None)

    def drawn(batch, heads, length, key_length=None):
        lengths = length, key_length or length, key_length or length
        shapes = [
            (batch, *pair) for pair in zip(lengths, [heads] * 3, widths, strict=True)
        ]
        state = (batch, heads, widths[0])
        *inputs, key_value, key_sum = draw(
            *shapes, (*state, widths[2]), state, device=device
        )
        if normalize:
            # what is divided by is far from zero, as for scores that are positive
            inputs = [inputs[0].abs(), inputs[1].abs(), inputs[2]]
        inputs = [placed(x, options["aligned"]) for x in inputs]
        return inputs, [key_value, key_sum.abs()] if normalize else [key_value]

    many = max(1, programs_at_once(device) // 4)
    if form == "step":
        for batch in (3, many):
            inputs, sums = drawn(batch, 4, 1)
            yield Case(inputs, output_and_sums, sums, differentiable=False)
        return
    sizes = [(3, 2, 200), (many, 4, 128), (1, 2, 1100), (1, 2, 1100, 200)]
    if causal:
        forms = FORMS if form == "any" else [form]
        rule = widths[1:], dtype, device
        sizes = [each for name in forms for each in sizes_of_form(name, *rule)]
    for i, size in enumerate(sizes):
        inputs, sums = drawn(*size)
        sums = sums if continued else []
        yield Case(inputs, output_and_sums if returned else output_alone, sums)
        if i > 0:
            continue
        # what is differentiated decides what is compiled, too
        if continued:
            yield Case(inputs, output_alone, fixed=sums)
        if returned:
            yield Case(inputs, output_alone, sums)


def _block_attention(options, dtype, device):
    block, padded = options["block_size"], options.get("padded")
    widths = options["width"], options["width"], options["value_width"]
    known = {k: options[k] for k in ("block_size", "causal", "activation")}

    def attend(query, key, value, **keywords):
        pads = pads_of(*query.shape[:2], device) if padded else None
        return block_attention(
            query, key, value, key_padding_mask=pads, **keywords, **known
        )[0]

    def call(inputs, backend):
        return (attend(*inputs, backend=backend),)

    def weights(query, key, **keywords):
        """(B, N, H, W), read off where the values are unit vectors."""
        batch, length, heads, _ = query.shape
        units = torch.eye(block, dtype=query.dtype, device=device)
        units = units.repeat(-(-length // block), 1)[:length, None]
        units = F.pad(units, (0, -block % widths[2])).split(widths[2], -1)
        parts = [
            seeded(attend, query, key, part.expand(batch, -1, heads, -1), **keywords)
            for part in units
        ]
        return torch.cat(parts, -1)[..., :block]

    def drawn_factors(batch, length):
        """What the kernel multiplies the weights by, by seed 1."""
        ones = torch.ones((batch, length, 4, widths[0]), dtype=dtype, device=device)
        whole = weights(ones, ones, backend="torch").double()
        drops = {"dropout_p": DROPOUT_P, "backend": "triton"}
        found, others = (
            torch.where(whole > 0, weights(ones, ones, seed=seed, **drops) / whole, 0)
            for seed in (1, 2)
        )
        check_factors(
            *(found, others, DROPOUT_P, {"key": -1, "head": 2, "query": 1}),
            used=whole > 0,
            # products of float32 may be TF32's
            rounding=8 * max(torch.finfo(dtype).eps, TF32_CUT[torch.float32]),
        )
        # without what rounding did to them
        return (found > 0) / (1 - DROPOUT_P)

    def call_with_dropout(factors, inputs, backend):
        query, key, value = inputs
        if backend == "triton":
            drops = {"dropout_p": DROPOUT_P, "backend": backend}
            return (seeded(attend, *inputs, **drops),)
        dropped = weights(query, key, backend=backend) * factors
        after = -query.shape[1] % block
        dropped, value = (
            F.pad(x, (0, 0, 0, 0, 0, after)).unflatten(1, (-1, block))
            for x in (dropped, value.to(dropped.dtype))
        )
        output = torch.einsum("bgihj,bgjhe->bgihe", dropped, value)
        output = output.flatten(1, 2)[:, : query.shape[1]]
        return (output.to(output_dtype(inputs[2].dtype, known["activation"])),)

    def step(inputs, backend):
        *tokens, keys, values = inputs
        batch = len(keys)
        length = torch.arange(batch, device=device) * 7 + block // 2
        state = BlockAttentionState(keys.clone(), values.clone(), length)
        output, state = block_attention(
            *tokens, initial_state=state, return_state=True, backend=backend, **known
        )
        return output, state.key, state.value

    if options["form"] == "step":
        for batch in (3, max(1, programs_at_once(device) // 4)):
            shapes = [(batch, 1, 4, width) for width in widths]
            shapes += [(batch, block, 4, width) for width in widths[1:]]
            inputs = draw(*shapes, device=device)
            inputs = [placed(x, options["aligned"]) for x in inputs]
            yield Case(inputs, step, differentiable=False)
        return
    # a short last block; more programs than run at once
    many = max(1, programs_at_once(device) // 4)
    for batch, length in ((3, 3 * block + 5), (many, 2 * block)):
        shapes = [(batch, length, 4, width) for width in widths]
        inputs = [placed(x, options["aligned"]) for x in draw(*shapes, device=device)]
        if options["dropout"]:
            factors = drawn_factors(batch, length)
            yield Case(inputs, partial(call_with_dropout, factors))
        else:
            yield Case(inputs, call)


def _lrpe(options, dtype, device):
    width = options["width"]
    (reflection,) = draw((width,), device=device)
    reflection /= reflection.norm()
    theta = 10000.0 ** -(torch.arange(0, width, 2, device=device).float() / width)

    def call(inputs, backend):
        query, key, theta = inputs
        positions = torch.arange(query.shape[1], device=device)
        return lrpe(
            query,
            key,
            theta,
            reflection.to(theta.dtype),
            positions,
            feature_map=options["feature_map"],
            backend=backend,
        )

    # tokens that do not fill the last program; more programs than run at once
    for length in (37, 1024 // width * programs_at_once(device) + 3):
        shape = (2, length, 4, width)
        inputs = draw(shape, shape, device=device)
        inputs = [placed(x, options["aligned"]) for x in inputs]
        yield Case(inputs, call, wide=[theta])


def _rms_norm(options, dtype, device):
    # rows that do not fill the last program; more programs than run at once
    for rows in (37, 2048 * programs_at_once(device) // options["width"] + 3):
        (x,) = draw((2, rows, options["width"]), device=device)
        yield Case(
            [placed(x, options["aligned"])],
            lambda inputs, backend: (rms_norm(*inputs, backend=backend),),
        )


def _gated_silu(options, dtype, device):
    # elements that do not fill the last program; more programs than run at once
    for rows in (3, 2 * programs_at_once(device) + 1):
        shape = (rows, 1365)
        inputs = [
            placed(x, options["aligned"]) for x in draw(shape, shape, device=device)
        ]
        yield Case(
            inputs, lambda inputs, backend: (gated_silu(*inputs, backend=backend),)
        )
        # its gradient takes the product with it
        (weight,) = draw((8, 1365), device=device)
        yield Case(
            [*inputs, weight / 37],
            lambda inputs, backend: (gated_linear(*inputs, backend=backend),),
        )


def _gated_linear_unit(options, dtype, device):
    width, inner = 32, options["width"]
    shapes = 2 * [(inner, width), (inner,)] + [(width, inner), (width,)]

    def call(inputs, backend):
        return (gated_linear_unit(*inputs, backend=backend),)

    # elements that do not fill the last program; more programs than run at once
    for rows in (3, 1024 * programs_at_once(device) // inner + 1):
        inputs = draw((rows, width), *shapes, device=device)
        yield Case([x / x.shape[-1] ** 0.5 for x in inputs], call)


def _cross_entropy(options, dtype, device):
    # several tiles of a row, the last one not full; more programs than run at once
    for rows, vocabulary in (3, 20_011), (2 * programs_at_once(device) + 1, 301):
        (logits,) = draw((rows, vocabulary), device=device)
        targets = torch.arange(rows, device=device) * 7 % vocabulary
        targets[1::5] = -100
        targets[0] = vocabulary - 1

        def call(inputs, backend, targets=targets):
            # read twice, and overwritten
            losses, x = [], inputs[0]
            for with_gradient in (False, True):
                x = placed(inputs[0].clone(), options["aligned"])
                losses.append(
                    cross_entropy_in_place(
                        x,
                        targets,
                        scale=3.0,
                        with_gradient=with_gradient,
                        backend=backend,
                    )
                )
            return *losses, x

        yield Case([4 * logits], call, differentiable=False)


def _residual(options, dtype, device):
    call, added = options["call"], getattr(torch, options["added"].split(".")[1])
    dropout_p = DROPOUT_P if options.get("dropout", call == "dropout_add") else 0.0

    def factors(shape):
        """What the kernel multiplies elements by: it draws, and torch follows."""
        if not dropout_p:
            return 1.0
        ones = torch.ones(shape, dtype=torch.float32, device=device)
        known = {"dropout_p": dropout_p, "backend": "triton"}
        found, others = (
            seeded(dropout_add, torch.zeros_like(ones), ones, seed=seed, **known)
            for seed in (1, 2)
        )
        check_factors(found, others, dropout_p, {"column": -1, "row": 1})
        return found.double()

    def run(first, last, inputs, backend):
        x = inputs[0]
        if call == "norm_with_residual":
            total, normed = norm_with_residual(x, backend=backend)
            # as in a layer, which adds to it; else its gradient comes from the norm
            return (2 * total, normed)[first:]
        y = inputs[1] if x.dtype == torch.float64 else inputs[1].to(added)
        if backend == "triton":
            op = dropout_add_norm if call == "dropout_add_norm" else dropout_add
            results = seeded(op, x, y, dropout_p=dropout_p, backend=backend)
            results = results if isinstance(results, tuple) else (results,)
            return results[first:last]
        total = x + (y.double() * factors(y.shape)).to(y.dtype)
        if call == "dropout_add":
            return (total,)
        return (total, rms_norm(total, backend=backend))[first:last]

    # rows that do not fill the last program; more programs than run at once
    for rows in (37, 2048 * programs_at_once(device) // options["width"] + 3):
        shape = (2, rows, options["width"])
        x, y = draw(shape, shape, device=device)
        y = y.to(added).float()
        inputs = [placed(each, options["aligned"]) for each in (x, y)]
        # gradients may come from the sum, from its norm, or from both
        parts = {"dropout_add": [(0, 1)], "norm_with_residual": [(0, 2), (1, 2)]}
        for part in parts.get(call, [(0, 2), (0, 1), (1, 2)]):
            tensors = inputs[:1] if call == "norm_with_residual" else inputs
            yield Case(tensors, partial(run, *part))


# (options, dtype and device of a configuration) to its cases
Cases = Callable[[Mapping[str, Any], torch.dtype, torch.device], Iterator[Case]]
# op -> its cases, and whether its kernels multiply matrices
CASES: dict[str, tuple[Cases, bool]] = {
    "linear_attention": (_linear_attention, True),
    "block_attention": (_block_attention, True),
    "lrpe": (_lrpe, False),
    "rms_norm": (_rms_norm, False),
    "gated_silu": (_gated_silu, False),
    "gated_linear_unit": (_gated_linear_unit, False),
    "cross_entropy": (_cross_entropy, False),
    "residual": (_residual, False),
}

"""The output layer and its loss, forward and backward, beside what libraries have.

    python -m benchmarks output_loss

The paper's width and vocabulary; weights tied or not cost the same. A contestant whose
package or device is missing says so. Errors are those of the gradients, against float64
over a smaller vocabulary: relative, Frobenius norm.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops import linear_cross_entropy
from fairseq_transnormer.ops.linear_cross_entropy import rows_at_a_time

from ..harness import command_line
from ..harness.cases import Deadline, add_time_limit, measure
from ..harness.memory import why_not_measured
from ..harness.phases import ALL_LOGITS

NAME = "output_loss"
OURS = "ops.linear_cross_entropy"
# of the errors, which float64 computes too
SMALL_VOCABULARY, SMALL_TOKENS = 4001, 300
# (features, weight, targets) to the sum of the losses
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(x, weight, targets)[0]


def fairseqs(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Log-softmax of all logits in float32, as fairseq's criterion has it."""
    scores = F.log_softmax(F.linear(x, weight), -1, dtype=torch.float32)
    return F.nll_loss(scores, targets, reduction="sum")


def torchs(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """torch's own chunks."""
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(x, weight, targets, reduction="sum", options=options)


def torchs_in_our_chunks(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """torch's with as many rows at a time as ours."""
    rows = rows_at_a_time(len(weight), x.itemsize)
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=min(rows, len(x)))
    return F.linear_cross_entropy(x, weight, targets, reduction="sum", options=options)


def ligers(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss(reduction="sum", accum_dtype=torch.float32)
    return loss(weight, x, targets)


def cut(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    from cut_cross_entropy import linear_cross_entropy as cut_cross_entropy

    return cut_cross_entropy(x, weight, targets, reduction="sum")


CONTESTANTS: dict[str, Loss] = {
    OURS: ours,
    ALL_LOGITS: fairseqs,
    "torch F.linear_cross_entropy": torchs,
    "torch F.linear_cross_entropy, our chunks": torchs_in_our_chunks,
    "liger-kernel": ligers,
    "cut-cross-entropy": cut,
}
PACKAGES = {"liger-kernel": "liger_kernel", "cut-cross-entropy": "cut_cross_entropy"}


def skipped(name: str, options) -> str | None:
    """Why a contestant cannot run, if so."""
    if name.startswith("torch F.") and not hasattr(F, "linear_cross_entropy"):
        return f"torch {torch.__version__} has no F.linear_cross_entropy"
    if name in PACKAGES:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            return f"the package {name} is not installed"
        if options.device.type != "cuda":
            return "its kernels take CUDA tensors"
    if name == "cut-cross-entropy" and options.dtype == "float32":
        return "its kernels take half precision"
    return None


def draw(tokens: int, vocabulary: int, options, dtype: torch.dtype) -> list[Tensor]:
    """Features, weight and targets; logits have a standard deviation of 2."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, options.width, generator=generator)
    weight = torch.randn(vocabulary, options.width, generator=generator)
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    leaves = x, weight * (2 * options.width**-0.5)
    placed = [each.to(options.device, dtype).requires_grad_() for each in leaves]
    return [*placed, targets.to(options.device)]


def gradients(loss: Loss, inputs: list[Tensor]) -> list[Tensor]:
    """The loss and the gradients of its sum."""
    x, weight, targets = inputs
    total = loss(x, weight, targets)
    # a loss in half precision would overflow where its gradients do not
    return [total.detach(), *torch.autograd.grad(total, (x, weight))]


def errors(loss: Loss, options) -> dict[str, float]:
    """Of the loss and of both gradients, over the small vocabulary."""
    dtype = getattr(torch, options.dtype)
    inputs = draw(SMALL_TOKENS, SMALL_VOCABULARY, options, dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs[:2]]
    wanted = gradients(_in_float64, [*exact, inputs[2]])
    found = gradients(loss, inputs)
    names = "loss_error", "features_error", "weight_error"
    return {
        name: float((one.double() - other).norm() / other.norm())
        for name, one, other in zip(names, found, wanted, strict=True)
    }


def _in_float64(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight), targets, reduction="sum")


def measurements(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one number of tokens after the other."""
    deadline = Deadline(options.time_limit)
    for tokens in options.tokens:
        inputs = draw(
            tokens, options.vocabulary, options, getattr(torch, options.dtype)
        )
        rows, calls = {}, {}
        for name in options.contestants:
            loss = CONTESTANTS[name]
            rows[name] = row = {"contestant": name, "tokens": tokens}
            reason = skipped(name, options) or deadline.over()
            if reason is None:
                try:
                    row |= errors(loss, options)
                except RuntimeError as error:
                    reason = why_not_measured(error)
            if reason is not None:
                row["skipped"] = reason
                continue
            calls[name] = functools.partial(gradients, loss, inputs)
        measure(rows, calls, options)
        print(f"{NAME}: {tokens} tokens", flush=True)
        yield list(rows.values())


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    add = parser.add_argument
    add("--dtype", choices=command_line.DTYPES, default="float32", help="of all")
    add(
        "--contestants",
        nargs="+",
        choices=CONTESTANTS,
        default=list(CONTESTANTS),
        help="to measure",
    )
    add("--tokens", nargs="+", type=positive_integer, default=[1024, 4096], help="N")
    add("--width", type=positive_integer, default=512, help="of the features")
    add("--vocabulary", type=positive_integer, default=267744, help="words")
    add_time_limit(parser, 3600)
    options = parser.parse_args(arguments)
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "width": options.width,
            "vocabulary": options.vocabulary,
            "errors": f"{SMALL_TOKENS} tokens, {SMALL_VOCABULARY} words",
        },
        measurements(options),
    )

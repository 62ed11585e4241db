"""What a training step computes and moves, kernel by kernel, without computing it.

The step runs on torch's fake tensors, which have shapes and no data, so that the
paper's sizes cost nothing. Counted is what torch's eager mode really does: operations
of products of matrices, bytes that every kernel reads and writes, bytes held at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pandas import DataFrame
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from fairseq_transnormer.modules import CausalLanguageModel, MaskedLanguageModel, config
from fairseq_transnormer.modules.float32 import Float32Module
from fairseq_transnormer.ops.triton_ops.launching import parts_of, shapes_only

from ..harness.mixed_precision import FlatAdam, MasterAdam

MASKED = 0.15
aten = torch.ops.aten
# operation -> argument of which only a few places are read
LOOKED_UP = {aten.embedding: 0, aten.nll_loss_forward: 0, aten.nll_loss_backward: 1}
# operations that take memory and run no kernel
ALLOCATIONS = {
    *(aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted),
    *(aten.new_empty, aten.new_empty_strided),
}
# operations that look at the shape of what they are given, and write
FILLS = {
    *(aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.new_ones),
    *(aten.new_full, aten.rand_like, aten.randn_like),
}
# operations that write their first argument without reading it
OVERWRITES = {aten.bernoulli_, aten.copy_, aten.fill_, aten.zero_}
# flash attention on the CPU, which torch's counter does not know: how it is counted,
# tensors that it takes, and which argument says that it is causal
CPU_FLASH = aten._scaled_dot_product_flash_attention_for_cpu
CPU_FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
FLASH = {
    CPU_FLASH: (sdpa_flop_count, 3, 4),
    CPU_FLASH_BACKWARD: (sdpa_backward_flop_count, 4, 7),
}


class Trace(TorchDispatchMode):
    """Counts while it is entered.

    kernels: one after the other, without views. name: torch's operation, or the Triton
    kernel. flops: of a product of matrices, two for each multiplication; else 0, also
    for Triton's kernels. bytes: of the tensors that it reads, each once, and of those
    that it writes; of one updated in place both; of every argument of a Triton kernel.
    single: on float32? peak_bytes: the most that tensors made since held at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[dict[str, object]] = []
        self.peak_bytes = self._held = 0
        self._storages: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is aten._local_scalar_dense.default:
            # "is anything masked?" is asked, and in which step Adam is
            return False if args[0].dtype == torch.bool else 1.0
        parts = parts_of(function)
        if parts is not None:
            # what is inside is counted: launches, and operations of torch
            with self, shapes_only(self._launched):
                return parts(*args, **kwargs)
        result = function(*args, **kwargs)
        read, written = _tensors((args, kwargs)), _tensors(result)
        known = {x.untyped_storage()._cdata for x in read}
        made = [x for x in written if x.untyped_storage()._cdata not in known]
        self._hold(made)
        if not made and not function._schema.is_mutable:
            return result
        operation = function.overloadpacket
        if operation in ALLOCATIONS or (made and not any(x.numel() for x in made)):
            return result
        if operation in FILLS:
            read = []
        moved = {_view(x): _bytes(x) for x in read}
        if operation in LOOKED_UP:
            moved[_view(args[LOOKED_UP[operation]])] = 0
        if operation in OVERWRITES:
            moved[_view(args[0])] = 0
        kernel = {
            "name": operation.__name__,
            "flops": _flops(operation, args, kwargs, result),
            "bytes": sum(moved.values()) + sum(map(_bytes, written)),
            "single": bool(read) and read[0].dtype == torch.float32,
        }
        self.kernels.append(kernel)
        return result

    def _launched(self, kernel, arguments) -> None:
        tensors = _tensors(arguments)
        row = {
            "name": kernel.__name__,
            "flops": 0.0,
            "bytes": sum(map(_bytes, tensors)),
            "single": tensors[0].dtype == torch.float32,
        }
        self.kernels.append(row)

    def _hold(self, made: list[Tensor]) -> None:
        # what nobody refers to any more has been given back before this was made
        for storage in [each for each in self._storages if each.expired()]:
            self._held -= self._storages.pop(storage)
        for x in made:
            storage = StorageWeakRef(x.untyped_storage())
            if storage not in self._storages:
                self._storages[storage] = size = x.untyped_storage().nbytes()
                self._held += size
        self.peak_bytes = max(self.peak_bytes, self._held)


def trace(call: Callable[[], object]) -> Trace:
    """What ``call`` does, in a ``FakeTensorMode``."""
    with Trace() as counted:
        call()
    return counted


def _flops(operation, args, kwargs, result) -> float:
    if operation in flop_registry:
        return float(flop_registry[operation](*args, **kwargs, out_val=result))
    if operation in FLASH:
        count, tensors, causal = FLASH[operation]
        return count(*(x.shape for x in args[:tensors])) / (1 + args[causal])
    return 0.0


def _tensors(values) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _view(x: Tensor) -> tuple:
    return x.untyped_storage()._cdata, x.storage_offset(), x.shape, x.stride()


def _bytes(x: Tensor) -> int:
    # what is expanded is read from fewer places than it has elements
    return min(x.nbytes, x.untyped_storage().nbytes())


class Model(NamedTuple):
    """kind: alm or blm; variant: T1, T2 or softmax, T2 with softmax attention alone."""

    kind: str
    variant: str = "T2"
    width: int = 512
    heads: int = 8
    layers: int = 6
    vocabulary: int = 267744
    length: int = 512
    dtype: str = "float32"


def build(model: Model) -> nn.Module:
    """The model, in training mode, with torch's ops; half of its layers are local."""
    half, variant = model.layers // 2, "T1" if model.variant == "T1" else "T2"
    attentions = f"diag*{half},norm*{model.layers - half}"
    if model.variant == "softmax":
        attentions = f"softmax*{model.layers}"
    family = "LanguageModel" if model.kind == "alm" else "Encoder"
    options = getattr(config, f"{family}{variant}Config")(
        attention_types=attentions,
        embed_dim=model.width,
        num_heads=model.heads,
        ffn_dim=8 * model.width // 3,
        backend="torch",
    )
    kind = CausalLanguageModel if model.kind == "alm" else MaskedLanguageModel
    built = kind(options, model.vocabulary)
    return cast(built, getattr(torch, model.dtype)).train()


def cast(built: nn.Module, dtype: torch.dtype) -> nn.Module:
    """built.to(dtype), which fake tensors do not allow; what is tied stays tied."""
    done: dict[Tensor, Tensor] = {}
    for module in built.modules():
        for name, p in module._parameters.items():
            if p is not None and not isinstance(module, Float32Module):
                done.setdefault(p, nn.Parameter(p.detach().to(dtype), p.requires_grad))
                module._parameters[name] = done[p]
    return built


def loss(built: nn.Module, model: Model, batch: int) -> Tensor:
    """As fairseq's criteria compute it: a sum, from a log-softmax in float32."""
    tokens = torch.zeros(batch, model.length, dtype=torch.long)
    if model.kind == "alm":
        scores = built(tokens).flatten(0, 1)
    else:
        # which tokens are masked is not known to a trace, how many are is
        masked = int(MASKED * tokens.numel())
        scores = built.lm_head(built.features(tokens).flatten(0, 1)[:masked])
    target = torch.zeros(len(scores), dtype=torch.long)
    # no name for the probabilities: they go as soon as they are not needed
    return F.nll_loss(
        F.log_softmax(scores, dim=-1, dtype=torch.float32), target, reduction="sum"
    )


class Cost(NamedTuple):
    """Kernels of a pass over a batch, and of Adam's step; what workers exchange, what a
    pass holds at most, and what is held all the time: weights, Adam's sums, fairseq's
    float32 copies of half precision with their gradients."""

    micro: DataFrame
    optimizer: DataFrame
    parameters: int
    gradient_bytes: int
    pass_bytes: int
    held_bytes: int


@cache
def traced(model: Model, batch: int) -> Cost:
    """Trace a model's pass over ``batch`` sequences, and Adam's step."""
    with FakeTensorMode():
        built = build(model)
        adam = MasterAdam if model.dtype == "float32" else FlatAdam
        optimizer = adam(built.parameters())
        weights = [p for p in built.parameters() if p.requires_grad]
        passes = trace(lambda: loss(built, model, batch).backward())
        step = trace(optimizer.step)
        sums = (x for s in optimizer.adam.state.values() for x in s.values() if x.dim())
        return Cost(
            DataFrame(passes.kernels),
            DataFrame(step.kernels),
            sum(p.numel() for p in weights),
            sum(p.nbytes for p in weights),
            passes.peak_bytes,
            sum(x.nbytes for x in (*weights, *optimizer.copies, *sums)),
        )

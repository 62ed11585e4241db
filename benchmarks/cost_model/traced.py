"""What a step computes and moves, kernel by kernel, without computing it.

The step runs on torch's fake tensors, which have shapes and no data, so that the
paper's sizes cost nothing. Counted is what torch's eager mode really does: operations
of products of matrices, bytes that every kernel reads and writes, bytes held at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from fairseq_transnormer.ops.kernels.launch import parts_of, shapes_only

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
# operation -> argument of which as much is read as is written
PICKS = {aten.embedding: 0, aten.index_select: 0, aten.index: 0, aten.gather: 0}
# operation -> argument of which next to nothing is read
LOOKS_INTO = {aten.nll_loss_forward: 0, aten.nll_loss_backward: 1}
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
# operations that may change an argument, and do not as they are called here: the
# gradients, which are divided where the kernel is given a loss scale
LEFT_ALONE = {aten._fused_adam_: "grads", aten._fused_adamw_: "grads"}
# Triton kernels -> how often an argument is moved, where that is not once. Others
# pass what they change twice, to be read and to be written
MOVED_BY_TRITON = {
    # a row is read for the sum of its exponentials and for the gradient
    "cross_entropy_kernel": {0: 3},
}
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
    that it writes; of one updated in place both; of every argument of a Triton kernel,
    see MOVED_BY_TRITON. single: are products those of float32? peak_bytes: the most
    that tensors made since held at one time.
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
        changed, only_written = _changed(function, args, kwargs)
        given = _tensors((args, kwargs))
        read = [x for x in given if not any(x is y for y in only_written)]
        written = _tensors(result) or changed
        known = {x.untyped_storage()._cdata for x in given}
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
        if operation in PICKS:
            moved[_view(args[PICKS[operation]])] = sum(map(_bytes, written))
        if operation in LOOKS_INTO:
            moved[_view(args[LOOKS_INTO[operation]])] = 0
        if operation in OVERWRITES:
            moved[_view(args[0])] = 0
        kernel = {
            "name": operation.__name__,
            "flops": _flops(operation, args, kwargs, result),
            "bytes": sum(moved.values()) + sum(map(_bytes, written)),
            "single": _is_single(read),
        }
        self.kernels.append(kernel)
        return result

    def _launched(self, kernel, arguments) -> None:
        times = MOVED_BY_TRITON.get(kernel.__name__, {})
        row = {
            "name": kernel.__name__,
            "flops": 0.0,
            "bytes": sum(
                times.get(place, 1) * _bytes(x)
                for place, argument in enumerate(arguments)
                for x in _tensors(argument)
            ),
            "single": _is_single(_tensors(arguments)),
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
        if operation is aten.addmm:
            args = args[:3]  # an out_dtype would be taken for a shape
        return float(flop_registry[operation](*args, **kwargs, out_val=result))
    if operation in FLASH:
        count, tensors, causal = FLASH[operation]
        return count(*(x.shape for x in args[:tensors])) / (1 + args[causal])
    return 0.0


def _tensors(values) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _changed(function, args, kwargs) -> tuple[list[Tensor], list[Tensor]]:
    """Arguments that an operation writes into, and those of them that it does not read
    because they are its ``out``."""
    if not function._schema.is_mutable:
        return [], []
    changed, only_written = [], []
    for place, argument in enumerate(function._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if argument.name == LEFT_ALONE.get(function.overloadpacket):
            continue
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        changed += _tensors(given)
        only_written += _tensors(given) if argument.is_out else []
    # what is added to is an argument, too
    inputs = _tensors((args, {k: v for k, v in kwargs.items() if k != "out"}))
    return changed, [x for x in only_written if not any(x is y for y in inputs)]


def _is_single(inputs: list[Tensor]) -> bool:
    """Whether products of these are float32's: sums may be, beside halves."""
    dtypes = {x.dtype for x in inputs}
    return torch.float32 in dtypes and not dtypes.intersection(HALF)


def _view(x: Tensor) -> tuple:
    return x.untyped_storage()._cdata, x.storage_offset(), x.shape, x.stride()


def _bytes(x: Tensor) -> int:
    # what is expanded is read from fewer places than it has elements
    return min(x.nbytes, x.untyped_storage().nbytes())

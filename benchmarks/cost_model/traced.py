"""What a training step computes and moves, kernel by kernel, without computing it.

The step runs on torch's fake tensors, which have shapes and no data, so that the
paper's sizes cost nothing. Counted is what torch's eager mode really does: operations
of products of matrices, bytes that every kernel reads and writes, bytes held at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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

# operation -> argument of which only a few places are read
LOOKED_UP = {
    torch.ops.aten.embedding: 0,
    torch.ops.aten.nll_loss_forward: 0,
    torch.ops.aten.nll_loss_backward: 1,
}
# operations that write their first argument without reading it
OVERWRITES = {
    torch.ops.aten.bernoulli_,
    torch.ops.aten.copy_,
    torch.ops.aten.fill_,
    torch.ops.aten.zero_,
}


class Kernel(NamedTuple):
    """One operation.

    Attributes:
        name: torch's.
        flops: of a product of matrices, two for each multiplication; else 0.
        bytes: of the tensors that it reads, each once, and of those that it writes;
            what is updated in place is both.
        single: does it compute on float32?
    """

    name: str
    flops: float
    bytes: int
    single: bool = True


class Trace(TorchDispatchMode):
    """Counts while it is entered.

    Attributes:
        kernels: one after the other; views are none.
        peak_bytes: the most that tensors made since held at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.peak_bytes = self._held = 0
        self._storages: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.ops.aten._local_scalar_dense.default:
            # "is anything masked?" is asked, and in which step Adam is
            return False if args[0].dtype == torch.bool else 1.0
        result = function(*args, **kwargs)
        read = _tensors((args, kwargs))
        written = _tensors(result)
        known = {_place(x) for x in read}
        made = [x for x in written if _place(x) not in known]
        self._hold(made)
        if not made and not function._schema.is_mutable:
            return result
        operation = function.overloadpacket
        flops = _flops(operation, args, kwargs, result)
        moved = {_view(x): _bytes(x) for x in read}
        if operation in LOOKED_UP:
            moved[_view(args[LOOKED_UP[operation]])] = 0
        if operation in OVERWRITES:
            moved[_view(args[0])] = 0
        size = sum(moved.values()) + sum(_bytes(x) for x in written)
        name = str(operation).removeprefix("aten.")
        single = bool(read) and read[0].dtype == torch.float32
        self.kernels.append(Kernel(name, flops, size, single))
        return result

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
    # flash attention on the CPU, which torch's counter does not know
    if operation is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        shapes, causal = [x.shape for x in args[:3]], args[4]
        return sdpa_flop_count(*shapes) / (1 + causal)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    if operation is backward:
        shapes, causal = [x.shape for x in args[:4]], args[7]
        return sdpa_backward_flop_count(*shapes) / (1 + causal)
    return 0.0


def _tensors(values) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _place(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _view(x: Tensor) -> tuple:
    return _place(x), x.storage_offset(), x.shape, x.stride()


def _bytes(x: Tensor) -> int:
    # what is expanded is read from fewer places than it has elements
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())

"""What a training step computes and moves, operation by operation, without computing.

The step runs on torch's meta device, where tensors have shapes and no data, so that
the paper's sizes cost nothing. Counted is what torch's eager mode really does:
operations of products of matrices, bytes that every kernel reads and writes, and bytes
held at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class Kernel(NamedTuple):
    """One operation.

    Attributes:
        name: torch's.
        flops: of a product of matrices, two for each multiplication; else 0.
        bytes: of the tensors that it reads and writes, each once.
    """

    name: str
    flops: float
    bytes: int


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
        flops = 0.0
        if function.overloadpacket in flop_registry:
            count = flop_registry[function.overloadpacket]
            flops = float(count(*args, **kwargs, out_val=result))
        moved = {_place(x): _bytes(x) for x in (*read, *written)}
        if function.overloadpacket is torch.ops.aten.embedding:
            moved[_place(read[0])] = _bytes(written[0])  # rows that are looked up
        name = str(function.overloadpacket).removeprefix("aten.")
        self.kernels.append(Kernel(name, flops, sum(moved.values())))
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
    """What ``call`` does with tensors on the meta device."""
    with Trace() as counted:
        call()
    return counted


def _tensors(values) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _place(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _bytes(x: Tensor) -> int:
    # what is expanded is read from fewer places than it has elements
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())

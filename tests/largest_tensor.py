"""How large the tensors are that operations make: what bounded memory means here."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest tensor has that an operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                # an expanded tensor occupies less than it shows
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.numel = max(self.numel, min(leaf.numel(), stored))
        return result

"""A model's Triton kernels are tried ahead of its first update."""

import torch

from ..modules.layers import LayerStack
from ..ops import resolve_backend, verdicts
from ..ops.backend import is_for_triton
from ..verify import LENGTH, needed_by_layers, with_all_forms


def try_kernels(trainer) -> None:
    """Have a child process try what the model's layers launch and no verdict is on.

    The sharded weights of FSDP cannot be looked at: there each op asks by itself.
    """
    cfg = trainer.cfg
    backend = getattr(cfg.model, "backend", "auto")
    if trainer.is_fsdp or resolve_backend(str(backend)) != "auto":
        return
    autocast = torch.get_autocast_dtype("cuda") if cfg.common.amp else None
    for stack in trainer.get_model().modules():
        if not isinstance(stack, LayerStack):
            continue
        weight = next(stack.parameters())
        if not is_for_triton(weight):
            continue
        length = min(LENGTH, stack.longest_input or LENGTH)
        found = needed_by_layers(stack, cfg.model.embed_dim, length, autocast)
        known = verdicts.known(weight.device)
        missing = [x for x in with_all_forms(found) if x.in_words() not in known]
        if missing:
            verdicts.try_in_a_child(missing)

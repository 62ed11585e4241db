"""Try a model's Triton kernels before its first update."""

import torch

from ..modules.layers import LayerStack
from ..ops import resolve_backend, verdicts
from ..ops.backend import is_for_triton
from ..verify import LENGTH, needed_by_layers, with_all_forms


def try_kernels(trainer) -> None:
    """Let a child process try the kernels of the model's layers without a verdict.

    The sharded weights of FSDP cannot be inspected. With FSDP each op has its kernel
    tried at its first call.
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

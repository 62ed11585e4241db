"""Every attention and layer of this package: importing one registers it."""

import importlib
import pkgutil
from dataclasses import make_dataclass
from itertools import chain
from typing import TYPE_CHECKING

from . import attention_pairs, baselines, diag_attention, norm_attention
from .registry import OPTIONS

__all__ = ["AttentionOptions", "attention_pairs", "diag_attention", "norm_attention"]

# a file in baselines/ is all that a new system needs
for _found in pkgutil.iter_modules(baselines.__path__, f"{baselines.__name__}."):
    importlib.import_module(_found.name)

# the fields of a configuration that attentions and layers have registered
if TYPE_CHECKING:
    # a checker registers nothing: all that are registered, in that order
    from .baselines.bigbird import BigBirdOptions
    from .baselines.cosformer import CosformerOptions
    from .baselines.flash import FlashOptions
    from .baselines.flash_quad import FlashQuadOptions
    from .baselines.gated_attention_unit import GatedAttentionUnitOptions
    from .baselines.informer import InformerOptions
    from .baselines.linear_attention import LinearOptions
    from .baselines.linformer import LinformerOptions
    from .baselines.long_short import LongShortOptions
    from .baselines.nystromformer import NystromformerOptions
    from .baselines.performer import PerformerOptions
    from .baselines.reformer import ReformerOptions
    from .baselines.skyformer import SkyformerOptions
    from .diag_attention import DiagOptions
    from .norm_attention import NormOptions

    class AttentionOptions(
        DiagOptions,
        NormOptions,
        BigBirdOptions,
        CosformerOptions,
        FlashOptions,
        GatedAttentionUnitOptions,
        FlashQuadOptions,
        InformerOptions,
        LinearOptions,
        LinformerOptions,
        LongShortOptions,
        NystromformerOptions,
        PerformerOptions,
        ReformerOptions,
        SkyformerOptions,
    ): ...

else:
    AttentionOptions = make_dataclass(
        "AttentionOptions", [], bases=tuple(dict.fromkeys(chain(*OPTIONS.values())))
    )

"""Every attention and layer of this package: importing one registers it."""

import importlib
import pkgutil

from . import attention_pairs, baselines
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

__all__ = ["AttentionOptions", "attention_pairs"]

# an attention without options needs nothing but a file in baselines/
for _found in pkgutil.iter_modules(baselines.__path__, f"{baselines.__name__}."):
    importlib.import_module(_found.name)


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
):
    """The options of all attentions, which every layer configuration has."""

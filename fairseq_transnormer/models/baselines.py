"""The systems that TransNormer is compared with, but for vanilla (``vanilla.py``).

Causal under the name alone, bidirectional with the prefix ``roberta_``.
"""

from ..modules.baselines.linear_attention import LinearNormalizer
from ..modules.choices import Activation
from ..modules.config import BLM, FeedForwardType, NormPosition, RelativePosition
from ..modules.norms import NormType
from .language_model import TransNormerConfig, TransNormerLanguageModel
from .masked_language_model import TransNormerEncoderConfig, TransNormerEncoderModel
from .variants import TINY, register_variant


def _register(
    name: str, attention: str, layers: tuple[int, int], causal, encoder, tiny=None
) -> None:
    """``name`` and ``roberta_name``, and their tiny ones of two layers.

    Args:
        attention: the attention or layer of all layers.
        layers: how many the causal and the bidirectional model have.
        causal, encoder: their values.
        tiny: further values of the tiny ones.
    """
    tiny = TINY | {"attention_types": f"{attention}*2"} | (tiny or {})
    for prefix, model, config, values, count in (
        ("", TransNormerLanguageModel, TransNormerConfig, causal, layers[0]),
        (
            "roberta_",
            TransNormerEncoderModel,
            TransNormerEncoderConfig,
            encoder,
            layers[1],
        ),
    ):
        values = values | {"attention_types": f"{attention}*{count}"}
        register_variant(prefix + name, model, config, **values)
        register_variant(f"{prefix}{name}_tiny", model, config, **(values | tiny))


LAYER_NORM = {"norm_type": NormType("layer_norm"), "norm_eps": 1e-5}
# what the vanilla transformer has around its attention
AROUND = LAYER_NORM | {
    "ffn_type": FeedForwardType("ffn"),
    "relative_position": RelativePosition("none"),
}
ALM_AROUND = AROUND | {"ffn_dim": 2048, "ffn_activation": Activation("relu")}
BLM_AROUND = BLM | AROUND | {"ffn_dim": 3072, "ffn_activation": Activation("gelu")}
UNSCALED = {"linear_normalizer": LinearNormalizer("none")}

# name, attention, own values, and those of the bidirectional model besides
for name, attention, own, bidirectional in (
    ("linear_transformer", "linear", {}, {}),
    ("linear_transformer_unscaled", "linear", UNSCALED, {}),
    ("norm_attention_transformer", "norm", {}, {}),
    ("performer", "performer", {}, {}),
    ("cosformer", "cosformer", {}, {"cosformer_length": 0}),
):
    encoder = BLM_AROUND | own | bidirectional
    _register(name, attention, (6, 12), ALM_AROUND | own, encoder)

FLASH_ENCODER = LAYER_NORM | {
    "embed_dim": 768,
    "num_heads": 12,
    "attention_dropout": 0.1,
    "flash_norm": NormType("layer_norm"),
    "no_final_norm": True,
}
for flash in ("flash_quad", "flash"):
    tiny = {"flash_key_dim": 16, "flash_chunk_size": 8}
    _register(flash, flash, (10, 24), LAYER_NORM, FLASH_ENCODER, tiny)

_register(
    "transformer_ls",
    "long_short",
    (6, 12),
    ALM_AROUND
    | {
        "norm_position": NormPosition("post"),
        "positional_embedding": "none",
        "output_bias": True,
    },
    BLM_AROUND | {"long_short_window": 8},
    {"long_short_window": 8, "long_short_chunk_size": 4},
)

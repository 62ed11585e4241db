"""The language models that are compared: TransNormer and fairseq's transformer_lm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
)

if TYPE_CHECKING:
    from fairseq.models.transformer_lm import TransformerLanguageModel

VARIANTS = {"T1": LanguageModelT1Config, "T2": LanguageModelT2Config}
DROPOUT = 0.1  # the paper's, in training; the models are built for evaluation


def transnormer_config(
    width: int, heads: int, layers: int, variant: str = "T2", backend: str = "auto"
) -> LanguageModelConfig:
    """The first half of the layers Diag, the other Norm; GLU of int(8/3 width).

    variant: one of ``VARIANTS``.
    """
    diag = layers // 2
    kinds = ["diag"] * diag + ["norm"] * (layers - diag)
    return VARIANTS[variant](
        attention_types=",".join(kinds),
        embed_dim=width,
        num_heads=heads,
        ffn_dim=8 * width // 3,
        dropout=DROPOUT,
        backend=backend,
    )


def build_transnormer(
    width: int,
    heads: int,
    layers: int,
    vocabulary: int,
    variant: str = "T2",
    backend: str = "auto",
) -> CausalLanguageModel:
    """A model of ``transnormer_config``, for evaluation."""
    config = transnormer_config(width, heads, layers, variant, backend)
    return CausalLanguageModel(config, vocabulary).eval()


def build_transformer(
    width: int, heads: int, layers: int, vocabulary: int, max_positions: int
) -> TransformerLanguageModel:
    """fairseq's transformer_lm, pre-norm, tied, FFN of 4 width, as in the paper.

    max_positions: its table of positions is made that long at once, since a longer
    input would make it anew in each step.
    """
    import fairseq_transnormer.plugin  # noqa: F401 (imports fairseq first)

    # isort: split
    from fairseq.data import Dictionary
    from fairseq.models.transformer_lm import (
        TransformerLanguageModel,
        TransformerLanguageModelConfig,
    )

    dictionary = Dictionary()
    while len(dictionary) < vocabulary:
        dictionary.add_symbol(str(len(dictionary)))
    config = TransformerLanguageModelConfig(
        decoder_embed_dim=width,
        decoder_input_dim=width,
        decoder_output_dim=width,
        decoder_ffn_embed_dim=4 * width,
        decoder_layers=layers,
        decoder_attention_heads=heads,
        decoder_normalize_before=True,
        share_decoder_input_output_embed=True,
        dropout=DROPOUT,
        max_target_positions=max_positions,
        tokens_per_sample=max_positions,
    )
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return TransformerLanguageModel.build_model(config, task).eval()

"""Language models of pixels with random weights, behind the package's generator."""

from __future__ import annotations

from argparse import Namespace

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)

# isort: split
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import (
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    FairseqLanguageModel,
)
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import OmegaConf

from fairseq_transnormer.generation import TextGenerator

# name -> architecture, and what it has besides the common sizes
SYSTEMS = {
    "TransNormer T2": "transnormer_t2",
    "1+elu": "linear_transformer",
    "LSH-1": "linear_transformer",
    "LSH-4": "linear_transformer",
    "vanilla": "vanilla_transformer",
}


def pixel_task(levels: int) -> LanguageModelingTask:
    """A task with a dictionary of the levels 0 ... levels - 1."""
    dictionary = Dictionary()
    for level in range(levels):
        dictionary.add_symbol(str(level))
    return LanguageModelingTask(Namespace(add_bos_token=False), dictionary)


def build_model(
    system: str, width: int, heads: int, layers: int, task: LanguageModelingTask
) -> FairseqLanguageModel:
    """A system of the table ``digits``, for evaluation, without dropout.

    FFN of 4 width or GLU of 8/3 width; T2 has DiagAttention in the first half of its
    layers.
    """
    half = layers // 2
    kinds = {
        "TransNormer T2": {
            "attention_types": f"diag*{half},norm*{layers - half}",
            "ffn_dim": 8 * width // 3,
        },
        "1+elu": {"attention_types": f"linear*{layers}", "ffn_dim": 4 * width},
        **{
            f"LSH-{rounds}": {
                "attention_types": f"reformer*{layers}",
                "reformer_hashes": rounds,
                "reformer_chunk_size": 32,
                "reformer_buckets": 64,
                "ffn_dim": 4 * width,
            }
            for rounds in (1, 4)
        },
        "vanilla": {"attention_types": f"softmax*{layers}", "ffn_dim": 4 * width},
    }
    arch = SYSTEMS[system]
    config = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch])
    values = {"embed_dim": width, "num_heads": heads, **kinds[system]}
    config = OmegaConf.merge(config, values)
    return MODEL_REGISTRY[arch].build_model(config, task).eval()


def text_generator(
    model: FairseqLanguageModel, task: LanguageModelingTask
) -> TextGenerator:
    """The package's generator on a model that was not trained."""
    config = OmegaConf.structured(FairseqConfig())
    return TextGenerator(GeneratorHubInterface(config, task, [model]))

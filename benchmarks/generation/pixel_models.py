"""Language models of pixels with random weights, behind the package's generator."""

from __future__ import annotations

from pathlib import Path

from fairseq_transnormer.checkpoints.load import TrainedModel
from fairseq_transnormer.checkpoints.manifest import CAUSAL, Manifest
from fairseq_transnormer.checkpoints.vocabulary import Vocabulary
from fairseq_transnormer.data.subword_files import SPECIAL
from fairseq_transnormer.inference import TextGenerator
from fairseq_transnormer.modules import LanguageModelConfig
from fairseq_transnormer.modules.systems import SYSTEMS as ALL

# name -> the system
SYSTEMS = {
    "TransNormer T2": "t2",
    "1+elu": "linear",
    "LSH-1": "linear",
    "LSH-4": "linear",
    "vanilla": "vanilla",
}


def generator(options, system: str, keeps_states: bool = True) -> TextGenerator:
    """A system of the table ``digits``, for evaluation, without dropout.

    FFN of 4 width or GLU of 8/3 width; T2 has DiagAttention in the first half of its
    layers.

    Args:
        options: width, heads and layers of the model, levels of a pixel, device.
        system: of ``SYSTEMS``.
        keeps_states: without, each step computes all tokens anew.
    """
    width, layers = options.width, options.layers
    half = layers // 2
    of_lsh = {"reformer_chunk_size": 32, "reformer_buckets": 64}
    kinds = {
        "TransNormer T2": {
            "attention_types": f"diag*{half},norm*{layers - half}",
            "ffn_dim": 8 * width // 3,
        },
        "1+elu": {"attention_types": f"linear*{layers}"},
        "LSH-1": of_lsh | {"reformer_hashes": 1},
        "LSH-4": of_lsh | {"reformer_hashes": 4},
        "vanilla": {"attention_types": f"softmax*{layers}"},
    }
    values = ALL[SYSTEMS[system]].model_values("alm")
    values |= {"attention_types": f"reformer*{layers}", "ffn_dim": 4 * width}
    values |= {"embed_dim": width, "num_heads": options.heads, **kinds[system]}
    words = Vocabulary([*SPECIAL, *map(str, range(options.levels))])
    manifest = Manifest(
        architecture=SYSTEMS[system],
        kind=CAUSAL,
        vocab_size=len(words.symbols),
        special_tokens={"bos": 0, "pad": 1, "eos": 2, "unk": 3},
        start_token=2,
        config=LanguageModelConfig(**values),
    )
    model = manifest.build().to(options.device).eval()
    made = TextGenerator(TrainedModel(Path(system), model, manifest, words))
    made.model.generation_config.use_cache = keeps_states
    return made

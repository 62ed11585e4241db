"""Time of a token through transformers' ``generate``, over the context.

    python -m benchmarks token_cost --threads 1 --clock process

A TransNormer T2 next to a Llama of the same width, heads, layers and vocabulary: batch
1, random weights in float32, greedy search. Llama runs twice: with transformers'
default cache, which is copied for each token, and with one of a size fixed ahead.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_transnormer.argument_types import integer_between, positive_integer
from fairseq_transnormer.ops import state_bytes

from ..harness import cases, command_line
from ..harness.language_models import transnormer_config

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

NAME = "token_cost"
CONTEXTS = [64, 512, 2048, 8192, 32768]
OURS, DEFAULT, STATIC = "TransNormer T2", "Llama, default cache", "Llama, static cache"


class Text:
    """A text that a model continues, one call at a time.

    tokens: int64 (1, N), of which the cache holds all but the last.
    """

    def __init__(self, model: PreTrainedModel, tokens: Tensor, cache: Cache):
        self.model, self.tokens, self.cache = model, tokens, cache

    def write(self, count: int) -> Tensor:
        """The text with ``count`` more tokens, int64 (1, N + count)."""
        self.tokens = self.model.generate(
            self.tokens,
            attention_mask=torch.ones_like(self.tokens),
            past_key_values=self.cache,
            min_new_tokens=count,
            max_new_tokens=count,
            do_sample=False,
            disable_compile=True,
        )
        return self.tokens


def build_models(options) -> tuple[PreTrainedModel, PreTrainedModel]:
    """T2, its first half of the layers Diag, and Llama with an FFN as wide."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from fairseq_transnormer.hf import TransNormerConfig, TransNormerForCausalLM

    config = transnormer_config(options.width, options.heads, options.layers)
    ours = TransNormerForCausalLM(TransNormerConfig.of(config, options.vocabulary))
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=options.vocabulary,
            hidden_size=options.width,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            max_position_embeddings=max(options.contexts) + new_tokens(options),
            tie_word_embeddings=True,
        )
    )
    return ours.eval().to(options.device), llama.eval().to(options.device)


def new_tokens(options) -> int:
    """How many at most are written after a prompt, those of the warm-up included."""
    return (max(options.least_repeats, options.most_repeats) + 1) * options.tokens


@torch.no_grad()
def texts(models, prompt: Tensor, options) -> dict[str, Text]:
    """Contestant -> the prompt, int64 (1, N), read up to its last token."""
    from transformers import StaticCache

    ours, llama = models
    states, cache = (
        model(prompt[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
        for model in models
    )
    length = prompt.shape[1] + new_tokens(options)
    static = StaticCache(config=llama.config, max_cache_len=length)
    for to, layer in zip(static.layers, cache.layers, strict=True):
        to.update(layer.keys, layer.values)
    return {
        OURS: Text(ours, prompt, states),
        DEFAULT: Text(llama, prompt, cache),
        STATIC: Text(llama, prompt, static),
    }


def kept_bytes(cache: Cache) -> int:
    """What a cache holds."""
    if hasattr(cache, "states"):
        return sum(state_bytes(state) for state in cache.states)
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def measure(models, context: int, options) -> list[dict[str, object]]:
    """A row for each contestant; the first call is a warm-up and is not timed."""
    prompt = torch.randint(4, options.vocabulary, (1, context), device=options.device)
    rows, calls = {}, {}
    for name, text in texts(models, prompt, options).items():
        text.write(options.tokens)
        kept = kept_bytes(text.cache)
        rows[name] = {"contestant": name, "context": context, "kept_bytes": kept}
        calls[name] = lambda text=text: text.write(options.tokens)
    cases.time_in_turns(rows, calls, options)
    for row in rows.values():
        row["seconds"] = [seconds / options.tokens for seconds in row["seconds"]]
    return list(rows.values())


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    add = parser.add_argument
    add("--contexts", type=integer_between(2), nargs="+", default=CONTEXTS)
    add("--tokens", type=positive_integer, default=16, help="of each call")
    command_line.add_width_and_heads(parser, 512)
    add("--layers", type=positive_integer, default=6, help="of the models")
    add("--vocabulary", type=positive_integer, default=8000, help="entries")
    options = parser.parse_args(arguments)
    command_line.check_width_and_heads(parser, options)
    command_line.prepare(options)
    models = build_models(options)
    counts = (sum(p.numel() for p in model.parameters()) for model in models)
    record = command_line.record(
        NAME,
        options,
        arguments,
        {
            "batch": 1,
            "dtype": "float32",
            "tokens_of_a_call": options.tokens,
            "width": options.width,
            "heads": options.heads,
            "layers": options.layers,
            "vocabulary": options.vocabulary,
            "parameters": dict(zip((OURS, "Llama"), counts, strict=True)),
        },
        transformers=version("transformers"),
    )
    for context in options.contexts:
        record.add(measure(models, context, options))
        print(f"{NAME}: context {context}", flush=True)
    record.finish()

"""What a generated token costs over the context: time, and what is kept in between.

Random weights, no dropout: what a step costs does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fairseq_transnormer.argument_types import integer_between
from fairseq_transnormer.ops import state_bytes

from . import measure
from .measure import Limits
from .models import (
    AS_SHIPPED,
    backend_skip,
    build_transnormer,
    transnormer_config,
)
from .options import DTYPES, ModelOptions, Rows, benchmark, option


def by_states(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """Constant states after ``prompt`` (1, N): a call that takes in ``token`` (1, 1)
    and gives the next logits, and the bytes that are kept between two calls."""
    held = [model.features(prompt, return_states=True)[1]]

    def step() -> Tensor:
        logits, held[0] = model(token, held[0], return_states=True)
        return logits

    return step, sum(map(state_bytes, held[0]))


def by_graph(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """The same as a CUDA graph; each call overwrites the logits of the one before."""
    _, states = model.features(prompt, return_states=True)
    before = [
        type(state)(*(None if x is None else x.clone() for x in state))
        for state in states
    ]
    logits: list[Tensor] = []

    def in_place() -> None:
        logits[:], new = (
            [(found := model(token, states, return_states=True))[0]],
            found[1],
        )
        _write(states, new)

    replay = measure.captured(lambda: in_place)
    _write(states, before)

    def step() -> Tensor:
        replay()
        return logits[0]

    return step, sum(map(state_bytes, states))


def _write(states, news) -> None:
    """Into the memory of ``states``, where it is not there already."""
    for state, new in zip(states, news, strict=True):
        for x, y in zip(state, new, strict=True):
            if x is not None and x is not y:
                x.copy_(y)


def recomputing(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """No states: each step computes the whole context."""
    context = torch.cat((prompt, token), dim=1)
    return lambda: model.output(model.features(context)[0][:, -1:]), context.nbytes


def by_cache(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """fairseq's transformer_lm with random keys and values in its incremental_state.

    What a step costs does not depend on their values, and fairseq fills its cache token
    by token only.
    """
    cache, held = {}, [prompt]
    for layer in model.decoder.layers:
        attention = layer.self_attn
        shape = (1, attention.num_heads, prompt.shape[1], attention.head_dim)
        names, weight = ("prev_key", "prev_value"), attention.k_proj.weight
        buffer = {name: weight.new_empty(shape).normal_() for name in names}
        buffer["prev_key_padding_mask"] = None
        attention._set_input_buffer(cache, buffer)

    def step() -> Tensor:
        held[0] = torch.cat((held[0], token), dim=1)
        return model.decoder(held[0], incremental_state=cache)[0]

    kept = (x for buffer in cache.values() for x in buffer.values() if x is not None)
    return step, measure.nbytes([*kept])


WAYS = {"states": by_states, "states, CUDA graph": by_graph, "recomputing": recomputing}


@dataclass
class GenerationCost(ModelOptions):
    """Batch 1."""

    dtype: str = option("float32", "of the weights", choices=DTYPES)
    backends: list[str] = option(["torch"], "of our ops", choices=["torch", "triton"])
    contexts: list[int] = option(
        [64, 512, 4096, 16384], "tokens before the first step", type=integer_between(2)
    )


@benchmark(GenerationCost)
@torch.no_grad()
def generation_cost(options: GenerationCost, settings: dict) -> Iterator[Rows]:
    """A token of whole models: states, fairseq's cache of keys and values, recomputing.

    A TransNormer T2, on a GPU also with the step as a CUDA graph, and fairseq's
    transformer_lm of the same size. Batch 1; each further step sees one token more.
    """
    from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

    from .fairseq_transformer import build_transformer

    size = options.width, options.heads, options.layers, options.vocabulary
    # room for the steps, and for fairseq's positions starting after the padding index
    longest = max(options.contexts) + options.most_repeats + options.least_repeats + 3
    peer = build_transformer(*size, longest).to(options.device, options.torch_dtype)
    entered: dict = {f"{AS_SHIPPED}, cache": (by_cache, peer)}
    on_gpu = options.device.type == "cuda"
    for backend in options.backends:
        model = build_transnormer(*size, backend=backend)
        model = model.to(options.device, options.torch_dtype)
        if not on_gpu:
            lay_out_for_decoding(model)
        for way, make in WAYS.items():
            entered[f"TransNormer T2 ({backend}), {way}"] = make, model
    for context in options.contexts:
        tokens = torch.randint(4, options.vocabulary, (1, context)).to(options.device)
        rows, calls = {}, {}
        for name, (make, model) in entered.items():
            rows[name] = row = {"provider": name, "phase": "one token"}
            row["context"] = context
            backend = "triton" if "(triton)" in name else "torch"
            reason = backend_skip(backend, options)
            if make is by_graph and not on_gpu:
                reason = reason or "CUDA graphs need a CUDA device"
            try:
                if reason is None:
                    parts = tokens[:, :-1], tokens[:, -1:].clone()
                    calls[name], row["kept_bytes"] = make(model, *parts)
                    calls[name]()  # warms it up
            except RuntimeError as error:
                reason = measure.why_not_measured(error)
            if reason:
                calls.pop(name, None)
                row["skipped"] = reason
        for name, seconds in measure.time_in_turns(
            calls, options, counted=True
        ).items():
            rows[name]["seconds"] = seconds
        yield [*rows.values()]


OURS, DEFAULT, STATIC = "TransNormer T2", "Llama, default cache", "Llama, static cache"


class Text:
    """A text that a model of transformers continues, one call at a time.

    tokens: int64 (1, N), of which the cache holds all but the last.
    """

    def __init__(self, model, tokens: Tensor, cache):
        self.model, self.tokens, self.cache = model, tokens, cache

    def write(self, count: int) -> Tensor:
        """The text with ``count`` more tokens."""
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

    def kept_bytes(self) -> int:
        if hasattr(self.cache, "states"):
            return sum(state_bytes(state) for state in self.cache.states)
        return sum(x.keys.nbytes + x.values.nbytes for x in self.cache.layers)


@dataclass
class TokenCost(ModelOptions):
    """Batch 1, greedy search, float32."""

    contexts: list[int] = option(
        [64, 512, 2048, 8192, 32768], "tokens of the prompt", type=integer_between(2)
    )
    tokens: int = option(16, "of each call")

    def new_tokens(self) -> int:
        """Tokens that are written after a prompt at most, the first call's too."""
        return (max(self.least_repeats, self.most_repeats) + 1) * self.tokens


def build_models(options: TokenCost):
    """T2, its first half of the layers Diag, and Llama with an FFN as wide."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from fairseq_transnormer.hf import TransNormerConfig, TransNormerForCausalLM

    config = transnormer_config(options.width, options.heads, options.layers)
    ours = TransNormerForCausalLM(TransNormerConfig.of(config, options.vocabulary))
    longest = max(options.contexts) + options.new_tokens()
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=options.vocabulary,
            hidden_size=options.width,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            max_position_embeddings=longest,
            tie_word_embeddings=True,
        )
    )
    return ours.eval().to(options.device), llama.eval().to(options.device)


@torch.no_grad()
def texts(models, prompt: Tensor, options: TokenCost) -> dict[str, Text]:
    """The prompt, int64 (1, N), read up to its last token by each provider."""
    from transformers import StaticCache

    ours, llama = models
    states, cache = (
        model(prompt[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
        for model in models
    )
    length = prompt.shape[1] + options.new_tokens()
    static = StaticCache(config=llama.config, max_cache_len=length)
    for to, layer in zip(static.layers, cache.layers, strict=True):
        to.update(layer.keys, layer.values)
    return {
        OURS: Text(ours, prompt, states),
        DEFAULT: Text(llama, prompt, cache),
        STATIC: Text(llama, prompt, static),
    }


@benchmark(TokenCost)
def token_cost(options: TokenCost, settings: dict) -> Iterator[Rows]:
    """A token of T2 through transformers' generate, compared with a Llama of its size.

    Llama runs twice: with transformers' default cache, which is copied for each token,
    and with one of a size fixed ahead.
    """
    models = build_models(options)
    settings["parameters"] = {
        name: sum(p.numel() for p in model.parameters())
        for name, model in zip((OURS, "Llama"), models, strict=True)
    }
    for context in options.contexts:
        shape = (1, context)
        prompt = torch.randint(4, options.vocabulary, shape, device=options.device)
        rows, calls = {}, {}
        for name, text in texts(models, prompt, options).items():
            text.write(options.tokens)  # not timed: a warm-up
            rows[name] = {"provider": name, "context": context}
            rows[name]["kept_bytes"] = text.kept_bytes()
            calls[name] = partial(text.write, options.tokens)
        for name, seconds in measure.time_in_turns(
            calls, options, counted=True
        ).items():
            rows[name]["seconds"] = [each / options.tokens for each in seconds]
        yield [*rows.values()]


CACHE, STATE, AGAIN = "key-value cache", "constant state", "recomputed"
# name -> system, its attention, what it keeps
PIXEL_SYSTEMS = {
    "TransNormer T2": ("t2", None, STATE),
    "1+elu": ("linear", "linear", STATE),
    "LSH-1": ("linear", "reformer", CACHE),
    "LSH-4": ("linear", "reformer", CACHE),
    "vanilla": ("vanilla", "softmax", CACHE),
}


@dataclass
class ImageGeneration(ModelOptions):
    """The paper's models of MNIST by default."""

    width: int = option(256, "of the models")
    layers: int = option(8, "of the models", type=integer_between(2))
    sides: list[int] = option([8, 16, 28], "of a square image", type=integer_between(2))
    images: int = option(16, "side by side")
    levels: int = option(256, "of a pixel")
    call_limit: float = option(3.0, "leave out cases that would take longer, in s")


def pixel_generator(options: ImageGeneration, name: str, keeps_states: bool):
    """A system of the table ``digits`` in the package's generator, without dropout.

    FFN of 4 width or GLU of 8/3 width; T2 has DiagAttention in the first half of its
    layers. Without states each step computes all tokens anew.
    """
    from fairseq_transnormer.checkpoints.load import TrainedModel
    from fairseq_transnormer.checkpoints.manifest import CAUSAL, Manifest
    from fairseq_transnormer.checkpoints.vocabulary import Vocabulary
    from fairseq_transnormer.data.subword_files import SPECIAL
    from fairseq_transnormer.inference import TextGenerator
    from fairseq_transnormer.modules import LanguageModelConfig
    from fairseq_transnormer.modules.systems import SYSTEMS

    (system, attention, _), layers = PIXEL_SYSTEMS[name], options.layers
    half = layers // 2
    values = SYSTEMS[system].model_values("alm")
    values |= {"embed_dim": options.width, "num_heads": options.heads}
    values |= {"attention_types": f"{attention}*{layers}", "ffn_dim": 4 * options.width}
    if attention is None:
        values["attention_types"] = f"diag*{half},norm*{layers - half}"
        values["ffn_dim"] = 8 * options.width // 3
    if attention == "reformer":
        values |= {"reformer_chunk_size": 32, "reformer_buckets": 64}
        values["reformer_hashes"] = int(name[-1])
    words = Vocabulary([*SPECIAL, *map(str, range(options.levels))])
    manifest = Manifest(
        architecture=system,
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


def draw(generator, pixels: int, images: int) -> list[list[int]]:
    """The tokens of ``images`` images, each with its end."""
    drawn = generator.generate(
        [""] * images,
        sampling=True,
        min_new_tokens=pixels,
        max_new_tokens=pixels,
        batch_size=images,
    )
    return [each.tokens for each in drawn]


@torch.no_grad()
def kept_bytes(generator, pixels: int) -> int:
    """What is kept of one image in front of its last pixel."""
    tokens = torch.full((1, pixels), 4, device=generator.trained.device)
    _, states = generator.model.model.features(tokens, return_states=True)
    return sum(state_bytes(state) for state in states)


@benchmark(ImageGeneration)
def image_generation(options: ImageGeneration, settings: dict) -> Iterator[Rows]:
    """Images a second, pixel by pixel: constant state, key-value cache, recomputing.

    All providers draw the same number of images side by side by the package's
    generator, from the whole distribution; recomputed: all tokens anew at each step.
    """
    limits, generators, growths = Limits(options), {}, {}
    for name, (_, attention, way) in PIXEL_SYSTEMS.items():
        for kept in (True, False):
            key = f"{name}, {way if kept else AGAIN}"
            generators[key] = pixel_generator(options, name, kept)
            # of the time with the pixels, at most; LSH sorts all tokens for each
            growths[key] = 1 if kept and way == STATE else 2
            growths[key] += not kept and attention == "softmax"
    for generator in generators.values():
        draw(generator, 2, options.images)  # what the first call alone does
    for side in sorted(options.sides):
        pixels, rows, calls = side**2, {}, {}
        for name, generator in generators.items():
            rows[name] = {"provider": name, "context": pixels, "batch": options.images}
            rows[name]["kept_bytes"] = kept_bytes(generator, pixels)
            reason = limits.skip(name, pixels, growths[name])
            if reason:
                rows[name]["skipped"] = reason
            else:
                calls[name] = partial(draw, generator, pixels, options.images)
        for name, seconds in measure.time_in_turns(
            calls, options, counted=True
        ).items():
            rows[name]["seconds"] = seconds
            limits.note(name, pixels, rows[name])
        yield [*rows.values()]

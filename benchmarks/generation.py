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

NEEDS_CUDA = "CUDA graphs need a CUDA device"


class Stateful:
    """TransNormer with its states of constant size."""

    def __init__(self, model):
        self.model, self.states = model, None

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N), in one pass."""
        features, self.states = self.model.features(prompt, return_states=True)
        return self.model.output(features[:, -1:])

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1)."""
        logits, self.states = self.model(token, self.states, return_states=True)
        return logits

    def kept_bytes(self) -> int:
        return sum(state_bytes(state) for state in self.states)


class Graphed(Stateful):
    """The same with the one-token step as a CUDA graph: one launch for all kernels."""

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N); captures the step after it."""
        logits = super().prefill(prompt)
        self.token = prompt[:, :1].clone()
        kept = [
            type(state)(*(None if x is None else x.clone() for x in state))
            for state in self.states
        ]
        self.replay = measure.captured(lambda: self._in_place)
        self._write(kept)
        return logits

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1); the next step overwrites them."""
        self.token.copy_(token)
        self.replay()
        return self.logits

    def _in_place(self) -> None:
        """A step that leaves states and logits where they are in memory."""
        self.logits, states = self.model(self.token, self.states, return_states=True)
        self._write(states)

    def _write(self, states) -> None:
        for state, new in zip(self.states, states, strict=True):
            for x, y in zip(state, new, strict=True):
                if x is not None and x is not y:
                    x.copy_(y)


class Recomputing:
    """The same model without states: each step computes the whole context."""

    def __init__(self, model):
        self.model = model

    def prefill(self, prompt: Tensor) -> Tensor:
        self.context = prompt
        return self.model.output(self.model.features(prompt)[:, -1:])

    def step(self, token: Tensor) -> Tensor:
        return self.prefill(torch.cat((self.context, token), dim=1))

    def kept_bytes(self) -> int:
        return self.context.nbytes


class Caching:
    """fairseq's transformer_lm with its keys and values in incremental_state."""

    def __init__(self, model):
        self.decoder = model.decoder

    def prefill(self, prompt: Tensor) -> None:
        """Stand as after ``prompt``, with random keys and values in the cache.

        What a step costs does not depend on their values, and fairseq fills its cache
        token by token only.
        """
        self.context, self.cache = prompt, {}
        for layer in self.decoder.layers:
            attention = layer.self_attn
            shape = (1, attention.num_heads, prompt.shape[1], attention.head_dim)
            weight = attention.k_proj.weight
            buffer = {
                "prev_key": weight.new_empty(shape).normal_(),
                "prev_value": weight.new_empty(shape).normal_(),
                "prev_key_padding_mask": None,
            }
            attention._set_input_buffer(self.cache, buffer)

    def step(self, token: Tensor) -> Tensor:
        self.context = torch.cat((self.context, token), dim=1)
        return self.decoder(self.context, incremental_state=self.cache)[0]

    def kept_bytes(self) -> int:
        buffers = (x for buffer in self.cache.values() for x in buffer.values())
        return measure.nbytes([x for x in buffers if x is not None])


WAYS = {"states": Stateful, "states, CUDA graph": Graphed, "recomputing": Recomputing}


@dataclass
class GenerationCost(ModelOptions):
    """Batch 1."""

    dtype: str = option("float32", "of the weights", choices=DTYPES)
    backends: list[str] = option(["torch"], "of our ops", choices=["torch", "triton"])
    contexts: list[int] = option(
        [64, 512, 4096, 16384], "tokens before the first step", type=integer_between(2)
    )


@benchmark(GenerationCost)
def generation_cost(options: GenerationCost, settings: dict) -> Iterator[Rows]:
    """A token of whole models: states, fairseq's cache of keys and values, recomputing.

    A TransNormer T2, on a GPU also with the step as a CUDA graph, beside fairseq's
    transformer_lm of the same size. Batch 1; each further step sees one token more.
    """
    from .fairseq_transformer import build_transformer

    size = options.width, options.heads, options.layers, options.vocabulary
    # room for the steps, and for fairseq's positions starting after the padding index
    longest = max(options.contexts) + 2 * options.most_repeats + 2
    peer = build_transformer(*size, longest).to(options.device, options.torch_dtype)
    entered: dict[str, Callable | str] = {
        f"{AS_SHIPPED}, cache": partial(Caching, peer)
    }
    for backend in options.backends:
        reason = backend_skip(backend, options)
        model = build_transnormer(*size, backend=backend)
        model = _for_decoding(model.to(options.device, options.torch_dtype))
        for way, kind in WAYS.items():
            graph = kind is Graphed and options.device.type != "cuda"
            skipped = reason or (NEEDS_CUDA if graph else None)
            name = f"TransNormer T2 ({backend}), {way}"
            entered[name] = skipped or partial(kind, model)
    for context in options.contexts:
        shape = (1, context)
        prompt = torch.randint(4, options.vocabulary, shape, device=options.device)
        with torch.no_grad():
            yield _steps(entered, prompt, options)


def _for_decoding(model):
    if next(model.parameters()).device.type == "cpu":
        from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

        lay_out_for_decoding(model)
    return model


def _steps(entered: dict, prompt: Tensor, options) -> Rows:
    rows, calls, token = {}, {}, prompt[:, :1]
    for name, make in entered.items():
        rows[name] = row = {"provider": name, "phase": "one token"}
        row["context"] = prompt.shape[1]
        if isinstance(make, str):
            row["skipped"] = make
            continue
        decoder = make()
        try:
            decoder.prefill(prompt[:, :-1])
            decoder.step(prompt[:, -1:])  # warms it up
        except RuntimeError as error:
            if not isinstance(decoder, Graphed):
                raise
            row["skipped"] = measure.why_not_measured(error)
            continue
        row["kept_bytes"] = decoder.kept_bytes()
        calls[name] = partial(decoder.step, token)
    for name, seconds in measure.time_in_turns(calls, options).items():
        rows[name]["seconds"] = seconds
    return [*rows.values()]


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
        for name, seconds in measure.time_in_turns(calls, options).items():
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
    """A system of the table ``digits`` behind the package's generator, no dropout.

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
        draw(generator, 2, options.images)  # what the first call does besides
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
        for name, seconds in measure.time_in_turns(calls, options).items():
            rows[name]["seconds"] = seconds
            limits.note(name, pixels, rows[name])
        yield [*rows.values()]

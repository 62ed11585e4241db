"""What a generated token costs over the context: time, and what is kept in between.

Random weights, no dropout: what a step costs does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fairseq_transnormer.ops import state_bytes

from . import measure
from .measure import Limits, attempt
from .models import (
    AS_SHIPPED,
    NO_GRAPHS,
    backend_skip,
    build_transnormer,
    transnormer_config,
)
from .options import GenerationCost, ImageGeneration, Rows, TokenCost


def by_states(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """Constant states after ``prompt`` (1, N). A call takes in ``token`` (1, 1) and
    gives the next logits. Bytes are those that are kept between two calls."""
    held = [model.features(prompt, return_states=True)[1]]

    def step() -> Tensor:
        logits, held[0] = model(token, held[0], return_states=True)
        return logits

    return step, sum(map(state_bytes, held[0]))


def by_graph(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """The same as a CUDA graph; each call overwrites the logits of the one before."""
    _, states = model.features(prompt, return_states=True)
    before, logits = [x.clone() for x in _tensors(states)], []

    def in_place() -> None:
        found, new = model(token, states, return_states=True)
        logits[:] = [found]
        write(_tensors(new))

    def write(news: list[Tensor]) -> None:
        for x, y in zip(_tensors(states), news, strict=True):
            if x is not y:
                x.copy_(y)

    replay = measure.captured(lambda: in_place)
    write(before)

    def step() -> Tensor:
        replay()
        return logits[0]

    return step, sum(map(state_bytes, states))


def _tensors(states) -> list[Tensor]:
    return [x for state in states for x in state if x is not None]


def recomputing(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """No states: each step computes the whole context."""
    context = torch.cat((prompt, token), dim=1)
    return lambda: model.output(model.features(context)[0][:, -1:]), context.nbytes


def by_cache(model, prompt: Tensor, token: Tensor) -> tuple[Callable, int]:
    """fairseq's transformer_lm with random keys and values in its incremental_state.

    What a step costs does not depend on their values, and fairseq fills its cache token
    by token only.
    """
    cache, held, kept = {}, [prompt], 0
    for layer in model.decoder.layers:
        attention = layer.self_attn
        shape = (1, attention.num_heads, prompt.shape[1], attention.head_dim)
        keys, values = attention.k_proj.weight.new_empty((2, *shape)).normal_()
        buffer = {"prev_key": keys.clone(), "prev_value": values.clone()}
        kept += measure.nbytes([*buffer.values()])
        attention._set_input_buffer(cache, buffer | {"prev_key_padding_mask": None})

    def step() -> Tensor:
        held[0] = torch.cat((held[0], token), dim=1)
        return model.decoder(held[0], incremental_state=cache)[0]

    return step, kept


WAYS = {"states": by_states, "states, CUDA graph": by_graph, "recomputing": recomputing}


@torch.no_grad()
def generation_cost(options: GenerationCost, settings: dict) -> Iterator[Rows]:
    from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

    from .fairseq_transformer import build_transformer

    size = options.width, options.heads, options.layers, options.vocabulary
    # room for the steps, and for fairseq's positions starting after the padding index
    longest = max(options.contexts) + options.most_repeats + options.least_repeats + 3
    peer = build_transformer(*size, longest).to(options.device, options.torch_dtype)
    entered: dict = {f"{AS_SHIPPED}, cache": (by_cache, peer, None)}
    for backend in options.backends:
        model = build_transnormer(*size, backend=backend)
        model = model.to(options.device, options.torch_dtype)
        if not options.on_gpu:
            lay_out_for_decoding(model)
        for way, make in WAYS.items():
            reason = backend_skip(backend, options)
            if make is by_graph and not options.on_gpu:
                reason = reason or NO_GRAPHS
            entered[f"TransNormer T2 ({backend}), {way}"] = make, model, reason

    def warm(make: Callable, model, tokens: Tensor) -> tuple[Callable, int]:
        call, kept = make(model, tokens[:, :-1], tokens[:, -1:].clone())
        call()
        return call, kept

    for context in options.contexts:
        tokens = torch.randint(4, options.vocabulary, (1, context)).to(options.device)
        cases = []
        for name, (make, model, reason) in entered.items():
            row = {"provider": name, "phase": "one token", "context": context}
            call = reason or attempt(warm, make, model, tokens)
            if not isinstance(call, str):
                call, row["kept_bytes"] = call
            cases.append((row, call))
        yield measure.measure(cases, options, memory=False, counted=True)


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
            cache=self.cache,
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


def build_models(options: TokenCost):
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
            max_position_embeddings=max(options.contexts) + options.new_tokens(),
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
        model(prompt[:, :-1], use_cache=True, logits_to_keep=1).cache
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


def token_cost(options: TokenCost, settings: dict) -> Iterator[Rows]:
    models = build_models(options)
    settings["parameters"] = {
        name: sum(p.numel() for p in model.parameters())
        for name, model in zip((OURS, "Llama"), models, strict=True)
    }
    for context in options.contexts:
        shape, cases = (1, context), []
        prompt = torch.randint(4, options.vocabulary, shape, device=options.device)
        for name, text in texts(models, prompt, options).items():
            text.write(options.tokens)  # not timed: a warm-up
            row = {"provider": name, "context": context}
            row["kept_bytes"] = text.kept_bytes()
            cases.append((row, partial(text.write, options.tokens)))
        rows = measure.measure(cases, options, memory=False, counted=True)
        for row in rows:
            row["seconds"] = [each / options.tokens for each in row["seconds"]]
        yield rows


CACHE, STATE, AGAIN = "key-value cache", "constant state", "recomputed"
# name -> system, its attention, what it keeps
PIXEL_SYSTEMS = {
    "TransNormer T2": ("t2", None, STATE),
    "1+elu": ("linear", "linear", STATE),
    "LSH-1": ("linear", "reformer", CACHE),
    "LSH-4": ("linear", "reformer", CACHE),
    "vanilla": ("vanilla", "softmax", CACHE),
}


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
    length = {"min_new_tokens": pixels, "max_new_tokens": pixels}
    drawn = generator.generate(
        [""] * images, sampling=True, batch_size=images, **length
    )
    return [each.tokens for each in drawn]


@torch.no_grad()
def kept_bytes(generator, pixels: int) -> int:
    """What is kept of one image: states in front of its last pixel, or its tokens."""
    if not generator.model.generation_config.use_cache:
        return 8 * (pixels + 1)
    tokens = torch.full((1, pixels), 4, device=generator.trained.device)
    _, states = generator.model.model.features(tokens, return_states=True)
    return sum(state_bytes(state) for state in states)


def image_generation(options: ImageGeneration, settings: dict) -> Iterator[Rows]:
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
    for pixels in sorted(side**2 for side in options.sides):
        cases = []
        for name, generator in generators.items():
            row = {"provider": name, "context": pixels, "batch": options.images}
            row["kept_bytes"] = kept_bytes(generator, pixels)
            reason = limits.skip(name, pixels, growths[name])
            call = partial(draw, generator, pixels, options.images)
            cases.append((row, reason or call))
        rows = measure.measure(cases, options, memory=False, counted=True)
        for row in rows:
            limits.note(row["provider"], pixels, row)
        yield rows

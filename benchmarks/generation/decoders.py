"""Language models that generate: TransNormer and its peer, behind one interface.

A decoder takes a prompt (``prefill``, or ``set_context`` as cheaply as it can) and
then one token at a time (``step``), and says how many bytes it keeps in between.
Batch 1, random weights, no dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_transnormer.modules import CausalLanguageModel
from fairseq_transnormer.ops import state_bytes
from fairseq_transnormer.ops.states import State

if TYPE_CHECKING:
    from fairseq.models.transformer_lm import TransformerLanguageModel


class StatefulTransNormer:
    """TransNormer T2 with its states of constant size."""

    def __init__(self, model: CausalLanguageModel):
        self.model, self.states = model, None

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N), in one pass."""
        features, self.states = self.model.features(prompt, return_states=True)
        return self.model.output(features[:, -1:])

    set_context = prefill

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1)."""
        logits, self.states = self.model(token, self.states, return_states=True)
        return logits

    def kept_bytes(self) -> int:
        return sum(state_bytes(state) for state in self.states)


class GraphedTransNormer(StatefulTransNormer):
    """The same with the one-token step as a CUDA graph: one launch for all kernels."""

    def __init__(self, model: CausalLanguageModel):
        super().__init__(model)
        self.graph = self.token = self.logits = None

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N); captures the step after it.

        Raises:
            RuntimeError: the step cannot be captured.
        """
        logits = super().prefill(prompt)
        self.token = prompt[:, :1].clone()
        kept = [clone_state(state) for state in self.states]
        # on a stream of its own, as capturing asks for: compiles, and makes workspaces
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step_in_place(self.token)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.step_in_place(self.token)
        for state, before in zip(self.states, kept, strict=True):
            write_state(state, before)
        return logits

    set_context = prefill

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1); the next step overwrites them."""
        self.token.copy_(token)
        self.graph.replay()
        return self.logits

    def step_in_place(self, token: Tensor) -> Tensor:
        """A step that leaves the states where they are in memory."""
        logits, states = self.model(token, self.states, return_states=True)
        for state, new in zip(self.states, states, strict=True):
            write_state(state, new)
        return logits


def clone_state(state: State) -> State:
    """A copy in memory of its own."""
    return type(state)(*(None if x is None else x.clone() for x in state))


def write_state(state: State, new: State) -> None:
    """Write ``new`` into the memory of ``state``, where it is not there already."""
    for x, y in zip(state, new, strict=True):
        if x is not None and x is not y:
            x.copy_(y)


class RecomputingTransNormer:
    """The same model without states: each step computes the whole context."""

    def __init__(self, model: CausalLanguageModel):
        self.model, self.context = model, None

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N), in one pass."""
        self.set_context(prompt)
        return self.model.output(self.model.features(prompt)[:, -1:])

    def set_context(self, prompt: Tensor) -> None:
        self.context = prompt

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1)."""
        return self.prefill(torch.cat((self.context, token), dim=1))

    def kept_bytes(self) -> int:
        return self.context.numel() * self.context.element_size()


class CachingTransformer:
    """fairseq's transformer_lm with its keys and values in incremental_state."""

    def __init__(self, model: TransformerLanguageModel):
        self.decoder, self.context, self.cache = model.decoder, None, {}

    def prefill(self, prompt: Tensor) -> Tensor:
        """Logits of the token after ``prompt`` (1, N), token by token.

        fairseq has no other way to fill the cache: a call with incremental_state takes
        the last token only.
        """
        self.context, self.cache = prompt[:, :0], {}
        for token in prompt.split(1, dim=1):
            logits = self.step(token)
        return logits

    def set_context(self, prompt: Tensor) -> None:
        """Stand as after ``prompt``, with random keys and values in the cache.

        What a step costs does not depend on their values.
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

    def prefill_without_cache(self, prompt: Tensor) -> Tensor:
        """What a prefill in one pass would cost at the least: a plain forward pass."""
        features, _ = self.decoder.extract_features(prompt, encoder_out=None)
        return self.decoder.output_layer(features[:, -1:])

    def step(self, token: Tensor) -> Tensor:
        """Logits of the token after ``token`` (1, 1)."""
        self.context = torch.cat((self.context, token), dim=1)
        return self.decoder(self.context, incremental_state=self.cache)[0]

    def kept_bytes(self) -> int:
        return sum(
            tensor.numel() * tensor.element_size()
            for buffer in self.cache.values()
            for tensor in buffer.values()
            if tensor is not None
        )

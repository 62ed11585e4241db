"""Time and memory of the attention ops are linear in the length.

Two measures: the bytes kept for the backward pass, and the largest tensor that any
operation makes.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from benchmarks.measure import peak_bytes
from fairseq_transnormer.ops import block_attention, linear_attention
from fairseq_transnormer.ops.linear_attention import chunks
from tests.largest_tensor import LargestTensor

from .drawing import CPU_BACKENDS, draw_qkv

LINEAR_BACKENDS = [b for b in CPU_BACKENDS if b != "reference"]
WIDTH = 16
OPS = {
    "linear": lambda *t, **o: linear_attention(*t, causal=True, **o)[0],
    "linear, normalized": lambda *t, **o: linear_attention(
        *t, causal=True, normalize=True, **o
    )[0],
    "linear, bidirectional": lambda *t, **o: linear_attention(*t, causal=False, **o)[0],
    "block": lambda *t, **o: block_attention(*t, block_size=64, causal=True, **o)[0],
    "block, relu": lambda *t, **o: block_attention(
        *t, block_size=64, causal=True, activation="relu", **o
    )[0],
    "block, bidirectional": lambda *t, **o: block_attention(
        *t, block_size=64, causal=False, **o
    )[0],
}
ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
linear_backends = pytest.mark.parametrize("backend", LINEAR_BACKENDS)


def draw(length, width=WIDTH):
    qkv = draw_qkv(length, batch=1, heads=1, width=width, dtype=torch.float32)
    return [x.requires_grad_() for x in qkv]


def draw_pads(length):
    return torch.arange(length)[None] >= length - 3


def largest_tensor(op, length, width=WIDTH, **options):
    qkv = draw(length, width)
    with LargestTensor() as mode:
        op(*qkv, key_padding_mask=draw_pads(length), **options).sum().backward()
    return mode.numel


def saved_bytes(op, length, **options):
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        op(*draw(length), key_padding_mask=draw_pads(length), **options)
    return sum(storages.values())


@ops
@linear_backends
def test_saved_bytes_grow_linearly(op, backend):
    at_2048, at_8192 = (saved_bytes(op, n, backend=backend) for n in (2048, 8192))
    assert 0 < at_8192 <= 4.05 * at_2048


@ops
@linear_backends
def test_no_tensor_is_quadratic_or_a_state_a_token(op, backend):
    length = 4096
    largest = largest_tensor(op, length, backend=backend)
    assert length * WIDTH <= largest  # the measure sees something
    assert largest < length * length
    assert largest <= length * 64 + 64 < length * WIDTH * WIDTH


@linear_backends
@pytest.mark.parametrize("elements", [chunks.TILE_ELEMENTS, 2**30])
def test_working_memory_is_a_segments(elements, backend, monkeypatch):
    """At this width the states of all chunks would be twice as large as the inputs.

    Tiles as a CPU takes them, and those of a whole segment, as on a GPU.
    """
    monkeypatch.setattr(chunks, "TILE_ELEMENTS", elements)
    largest = largest_tensor(OPS["linear"], 4096, width=128, backend=backend)
    assert largest == 4096 * 128


@linear_backends
@pytest.mark.parametrize("normalize", [False, True])
def test_the_backward_pass_keeps_one_state_a_segment(normalize, backend):
    """Beyond inputs and mask: far less than one state a chunk of 64."""
    length, kept = 8192, 0
    qkv = draw(length)
    inputs = {x.untyped_storage().data_ptr() for x in qkv}

    def pack(tensor):
        nonlocal kept
        if tensor.untyped_storage().data_ptr() not in inputs and tensor.dim() == 4:
            if tensor.shape[1] != length:
                kept += tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        linear_attention(*qkv, causal=True, normalize=normalize, backend=backend)
    state = WIDTH * (WIDTH + normalize) * 4
    assert kept <= (length // 1024) * state


def test_a_forward_pass_alone_holds_little_beside_its_output():
    """The paper's length and heads: at most 1.5 times what softmax attention holds."""
    qkv = draw_qkv(512, batch=1, heads=8, width=64, dtype=torch.float32)
    softmax = partial(F.scaled_dot_product_attention, is_causal=True)
    ours, theirs = (
        peak_bytes(partial(call, *inputs), torch.device("cpu"))
        for call, inputs in (
            (OPS["linear"], qkv),
            (softmax, [x.transpose(1, 2).contiguous() for x in qkv]),
        )
    )
    assert 512 * 8 * 64 * 4 < ours < 1.5 * theirs

"""Attentions of encoders against other people's code, with the same weights in float64.

Those packages are an extra, ``oracles``, and each test is skipped without its own:
docs/contributing.md has the command that runs them.
"""

import pytest
import torch

from fairseq_transnormer.modules import EncoderConfig
from fairseq_transnormer.modules.baselines.bigbird import BigBirdAttention
from fairseq_transnormer.modules.baselines.linformer import LinformerAttention
from fairseq_transnormer.modules.baselines.nystromformer import NystromformerAttention

from .comparing import HEADS, WIDTH, assert_same, draw, relative_difference

# float64's rounding, over some hundred operations
EXACT = 1e-12


def inner(layer, x):
    """What the layer gives before its output projection, which some have apart."""
    layer.out_proj = torch.nn.Identity()
    return layer(x)[0]


def build(kind, **values):
    config = EncoderConfig(embed_dim=WIDTH, num_heads=HEADS, **values)
    return kind(config, causal=False).double()


def weights_of(layer, *names):
    """The layer's query, key and value projections under the names of others."""
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    return {
        f"{name}.{kind}": value
        for name, projection in zip(names, projections, strict=True)
        for kind, value in projection.state_dict().items()
    }


@pytest.mark.parametrize("blocks", [9, 12])
@torch.no_grad()
def test_bigbird_is_that_of_transformers(blocks):
    theirs = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")
    configuration = pytest.importorskip("transformers").BigBirdConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        block_size=4,
        num_random_blocks=2,
        use_bias=True,
    )
    ours = build(BigBirdAttention, bigbird_block_size=4, bigbird_random_blocks=2)
    x = draw(4 * blocks)
    seen, nothing = ours.seen_blocks(torch.tensor([blocks - 1]), blocks)
    random, none = (each[0, :, 1:-1, -2:] for each in (seen, nothing))
    assert not none.any()

    other = theirs.BigBirdBlockSparseAttention(configuration).double().eval()
    other.load_state_dict(weights_of(ours, "query", "key", "value"))
    # which blocks are drawn is each implementation's own
    other._bigbird_block_rand_mask_with_head = lambda **_: random.numpy()
    masks = theirs.BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(x.shape[:2], dtype=x.dtype), 4
    )
    blocked, band, from_mask, to_mask = masks
    expected, _ = other(x, band, from_mask, to_mask, blocked, blocked)
    assert_same(f"bigbird, {blocks} blocks of 4", inner(ours, x), expected, EXACT)


@pytest.mark.parametrize("kernel_size", [0, 5])
@torch.no_grad()
def test_nystromformer_is_that_of_transformers(kernel_size):
    """With their exact start of the inverse; the other one, of one norm for the batch,
    differs as docs/systems.md says."""
    theirs = pytest.importorskip(
        "transformers.models.nystromformer.modeling_nystromformer"
    )
    x = draw(32)
    configuration = theirs.NystromformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_landmarks=8,
        segment_means_seq_len=32,
        conv_kernel_size=kernel_size or 1,
    )
    ours = build(
        NystromformerAttention,
        nystromformer_landmarks=8,
        nystromformer_kernel_size=kernel_size,
    )
    other = theirs.NystromformerSelfAttention(configuration).double().eval()
    weights = weights_of(ours, "query", "key", "value")
    if kernel_size:
        weights["conv.weight"] = ours.convolution.weight
        other.load_state_dict(weights)
    else:
        other.load_state_dict(weights, strict=False)
        other.conv_kernel_size = None
    found = inner(ours, x)
    assert 1e-3 < relative_difference(found, other(x)[0]) < 1
    other.init_option = "exact"
    assert_same(f"nystromformer, kernel of {kernel_size}", found, other(x)[0], EXACT)


@torch.no_grad()
def test_nystromformer_converges_to_nystrom_attention():
    """Another start of the inverse, which no longer matters after 60 iterations."""
    theirs = pytest.importorskip("nystrom_attention")
    ours = build(
        NystromformerAttention, nystromformer_landmarks=8, nystromformer_iterations=60
    )
    other = theirs.NystromAttention(
        WIDTH,
        dim_head=WIDTH // HEADS,
        heads=HEADS,
        num_landmarks=8,
        pinv_iterations=60,
        residual=False,
    ).double()
    for projection in (ours.q_proj, ours.k_proj, ours.v_proj):
        torch.nn.init.zeros_(projection.bias)  # theirs have none
    parts = (ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight)
    other.to_qkv.weight.copy_(torch.cat(parts))
    other.to_out = torch.nn.Identity()
    x = draw(32)
    # the inverse of a matrix magnifies rounding
    what = "nystromformer, 60 iterations, nystrom-attention"
    assert_same(what, inner(ours, x), other(x), 1e3 * EXACT)


@pytest.mark.parametrize("length", [24, 17])
@torch.no_grad()
def test_linformer_is_the_one_of_its_package(length):
    """Theirs has one E for all heads; inputs may be shorter than it."""
    theirs = pytest.importorskip("linformer.linformer")
    ours = build(LinformerAttention, linformer_features=6, linformer_length=24)
    ours.length_proj.copy_(ours.length_proj[:1].expand_as(ours.length_proj))
    for projection in (ours.q_proj, ours.k_proj, ours.v_proj):
        torch.nn.init.zeros_(projection.bias)  # theirs have none
    other = theirs.LinformerSelfAttention(WIDTH, 24, k=6, heads=HEADS).double()
    projection = ours.length_proj[0].T
    weights = {
        f"to_{each}.weight": getattr(ours, f"{each}_proj").weight for each in "qkv"
    }
    weights |= {"proj_k": projection, "proj_v": projection}
    weights |= {f"to_out.{k}": v for k, v in ours.out_proj.state_dict().items()}
    other.load_state_dict(weights)
    x = draw(length)
    assert_same(f"linformer, {length} tokens", ours(x)[0], other(x), EXACT)

"""Informer, BigBird, Reformer: their papers' masks, naively in float64."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from .attentions import HEAD, HEADS, build, check, draw, softmax, vanilla


@pytest.mark.parametrize("length", [1, 2, 8, 21, 60])
@torch.no_grad()
def test_informer(length):
    """Algorithm 1: the top u of max - mean over a sample, the mean for the others."""
    layer = build("informer", informer_factor=2)
    u = max(1, min(length, 2 * math.ceil(math.log(length))))

    def equation(q, k, v):
        sample = [
            s * length // u
            + layer.drawn[s].item() % ((s + 1) * length // u - s * length // u)
            for s in range(u)
        ]
        scores = q @ k[:, sample].transpose(1, 2) / math.sqrt(HEAD)
        measure = scores.amax(-1) - scores.mean(-1)
        o = v.mean(1, keepdim=True).repeat(1, length, 1)
        for h in range(HEADS):
            top = measure[h].topk(u).indices
            o[h, top] = vanilla(q, k, v)[h, top]
        return o

    check(layer, equation, length)


@torch.no_grad()
def test_informer_with_all_queries_is_softmax_attention():
    check(build("informer", informer_factor=30), vanilla, 20)


def bigbird_visible(layer, length, size):
    """(H, N, N) by the paper's words; random blocks as the layer drew them."""
    count = -(-length // size)
    seen, outside = layer.seen_blocks(torch.tensor([count - 1]), count)
    visible = torch.zeros(HEADS, count, count, dtype=torch.bool)
    drawn = []
    for h in range(HEADS):
        for i in range(count):
            usual = {0, count - 1, i - 1, i, i + 1} & {*range(count)}
            entries = seen[0, h, i][~outside[0, h, i]].tolist()
            assert len(entries) == len({*entries}) and {*entries} <= {*range(count)}
            random = {*entries[-layer.random_blocks :]} - usual
            assert {*entries} == usual | random
            others = count - len(usual)
            assert len(random) == min(layer.random_blocks, others)
            drawn.append(random)
            whole = i in (0, count - 1)
            visible[h, i, list(range(count) if whole else usual | random)] = True
    visible = visible.repeat_interleave(size, 1).repeat_interleave(size, 2)
    return visible[:, :length, :length], drawn


@pytest.mark.parametrize("length", [1, 3, 4, 8, 11, 33, 64])
@torch.no_grad()
def test_bigbird(length):
    layer = build("bigbird", bigbird_block_size=4, bigbird_random_blocks=2)
    visible, drawn = bigbird_visible(layer, length, 4)
    assert (length < 60) or len({frozenset(each) for each in drawn}) > 10
    assert visible.all() == (length <= 12)
    check(layer, lambda q, k, v: softmax(q, k, visible) @ v, length)


@torch.no_grad()
def test_bigbird_without_random_blocks():
    layer = build("bigbird", bigbird_block_size=2, bigbird_random_blocks=0)
    block = torch.arange(30) // 2
    near = (block[:, None] - block).abs() <= 1
    end = (block == 0) | (block == 14)
    visible = near | end | end[:, None]
    check(layer, lambda q, k, v: softmax(q, k, visible) @ v, 30)


def test_bigbirds_choices_repeat_after_those_that_are_drawn():
    layer = build("bigbird", bigbird_block_size=1, bigbird_random_blocks=2)
    seen, outside = layer.seen_blocks(torch.tensor([1499]), 1500)
    assert seen.min() == 0 and seen.max() == 1499
    assert not outside[:, :, 2:1498].any()


def reformer_order(layer, q, length):
    """Tokens of one head and round after another, sorted by h(x) = argmax [xR; -xR]."""
    pairs = 1
    while 2 * pairs <= min(length // layer.chunk_size, layer.buckets // 2):
        pairs *= 2
    for r in range(len(layer.rotations.directions)):
        for h in range(HEADS):
            rotated = q[h] @ layer.rotations.directions[r, h, :, :pairs]
            bucket = torch.cat((rotated, -rotated), -1).argmax(-1).tolist()
            assert max(bucket) < 2 * pairs
            yield r, h, sorted(range(length), key=lambda i: (bucket[i], i)), bucket


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("length", [1, 4, 5, 16, 31])
@torch.no_grad()
def test_reformer(length, rounds):
    """The explicit mask of each round, rounds weighed by their sums of exp(score)."""
    size = 4
    layer = build("reformer", reformer_chunk_size=size, reformer_hashes=rounds)

    def equation(q, k, v):
        assert torch.equal(q, k)
        keys = q / q.norm(dim=-1, keepdim=True)
        numerator, divisor, used = (
            torch.zeros_like(v),
            torch.zeros_like(v[..., 0]),
            set(),
        )
        for _, h, order, bucket in reformer_order(layer, q, length):
            chunk = {token: place // size for place, token in enumerate(order)}
            used |= {*bucket}
            for i in range(length):
                seen = [j for j in order if 0 <= chunk[i] - chunk[j] <= 1 and j != i]
                for j in seen or [i]:
                    # alone with itself a token counts for next to nothing
                    weight = (q[h, i] @ keys[h, j] - (0 if seen else 700)).exp()
                    numerator[h, i] += weight * v[h, j]
                    divisor[h, i] += weight
        assert length < 16 or len(used) > 2
        return numerator / divisor[..., None]

    check(layer, equation, length)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("length", [1, 4, 31, 60])
@torch.no_grad()
def test_causal_reformer(length, rounds):
    """Token i sees the tokens before it of its own bucket, from the start of the chunk
    before its own on, chunks counted inside the bucket."""
    size, buckets = 4, 4
    layer = build(
        "reformer",
        causal=True,
        reformer_chunk_size=size,
        reformer_hashes=rounds,
        reformer_buckets=buckets,
    )

    def equation(q, k, v):
        keys = q / q.norm(dim=-1, keepdim=True)
        numerator, divisor = torch.zeros_like(v), torch.zeros_like(v[..., 0])
        longest = 0
        for r, h in itertools.product(range(rounds), range(HEADS)):
            rotated = q[h] @ layer.rotations.directions[r, h]
            bucket = torch.cat((rotated, -rotated), -1).argmax(-1).tolist()
            members = [
                [i for i in range(length) if bucket[i] == b] for b in range(buckets)
            ]
            longest = max(longest, *map(len, members))
            for own in members:
                for rank, i in enumerate(own):
                    seen = own[max(rank // size - 1, 0) * size : rank]
                    for j in seen or [i]:
                        weight = (q[h, i] @ keys[h, j] - (0 if seen else 700)).exp()
                        numerator[h, i] += weight * v[h, j]
                        divisor[h, i] += weight
        # some have a chunk that they do not see any more
        assert length < 60 or longest > 2 * size
        return numerator / divisor[..., None]

    check(layer, equation, length)


@torch.no_grad()
def test_reformer_with_one_chunk_is_softmax_attention_without_itself():
    layer = build("reformer", reformer_chunk_size=12)

    def equation(q, k, v):
        scores = q @ F.normalize(q, dim=-1).transpose(1, 2)
        return scores.masked_fill(torch.eye(12).bool(), -math.inf).softmax(-1) @ v

    check(layer, equation, 12)


@torch.no_grad()
def test_bfloat16_hashes_and_chooses_nearly_as_float64_does():
    """What the tests of half precision leave out: the choices that rounding changes."""
    torch.manual_seed(1)
    layer, x = build("reformer"), draw(512, rows=1)
    q, _, _ = layer.project(x)
    pairs = torch.tensor([8])
    bucket, rounded = (layer.rotations(each, pairs) for each in (q, q.bfloat16()))
    assert 0.97 < (bucket == rounded).double().mean() < 1
    layer, lengths = build("informer"), torch.tensor([512])
    counts = torch.tensor([112])
    q, k, _ = layer.project(x)
    top, near = (
        layer._chosen(*each, lengths, counts, 112)
        for each in ((q, k), (q.bfloat16(), k.bfloat16()))
    )
    for a, b in zip(top[0].tolist(), near[0].tolist(), strict=True):
        assert 0.97 * 112 < len({*a} & {*b}) <= 112

"""BigBird: blocks see a window, global and random blocks (Zaheer et al., 2020)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import softmax_attention
from ...ops.inputs import real_lengths
from ...ops.rows import pad_slots
from ..attention import EncoderAttention, LayerConfig
from ..options import described
from ..registry import register_attention
from .segments import draw_integers, one_of_each, segments

# number of blocks after which random choices repeat
DRAWN_BLOCKS = 1024


@dataclass
class BigBirdOptions:
    """What can be configured of BigBird alone."""

    bigbird_block_size: int = described(64, "BigBird: tokens in a block", at_least=1)
    bigbird_random_blocks: int = described(
        3, "BigBird: random blocks that a block sees", at_least=0
    )


@register_attention("bigbird", BigBirdOptions)
class BigBirdAttention(EncoderAttention):
    """softmax attention of each block of tokens over some of the blocks.

    A block sees itself and its two neighbours, the first and the last block of the row,
    and up to ``random_blocks`` other blocks. The first and the last block see all
    blocks. Time and memory are linear in the length.

    Random blocks: the remaining blocks are divided into ``random_blocks`` segments of
    equal length, and each head takes one block of each. The choice within a segment is
    drawn when the module is built and saved with it.

    Args:
        config, causal: see ``EncoderAttention``; reads ``BigBirdOptions`` and
            attention_dropout.
    """

    drawn: Tensor

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.block_size = config.bigbird_block_size
        self.random_blocks = config.bigbird_random_blocks
        self.register_buffer(
            "drawn", draw_integers(self.num_heads, DRAWN_BLOCKS, self.random_blocks)
        )
        self.initialise()

    def seen_blocks(self, last: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The blocks that blocks 0 ... count - 1 of each row see.

        Args:
            last: the row's last block, (B,).
            count: how many blocks there are in the batch.

        Returns:
            int64 (B, H, count, 5 + random blocks), and bool of that shape, True at
            unused entries. No block occurs twice. The entries of the first and the last
            block omit the blocks that they see as global ones.
        """
        device, batch = last.device, len(last)
        block = torch.arange(count, device=device)
        last = last[:, None]
        window = block[:, None] + torch.arange(-1, 2, device=device)
        window = window.expand(batch, -1, -1)
        ends = torch.stack((torch.zeros_like(last), last), -1).expand(-1, count, -1)
        second_end = torch.arange(2, device=device) == 1
        # a row with a single block does not have it at both ends
        no_end = second_end & (ends == 0)
        no_neighbour = (window <= 0) | (window >= last[..., None])
        # blocks 1 ... last - 1 outside of the window
        low, high = (block - 1).clamp(min=1), (block + 1).minimum(last - 1)
        taken = (high - low + 1).clamp(min=0)
        start, end = segments((last - 1 - taken).clamp(min=0), self.random_blocks)
        drawn = self.drawn[:, block % DRAWN_BLOCKS]
        place, none_left = one_of_each(start.unsqueeze(1), end.unsqueeze(1), drawn)
        random = 1 + place
        random = random + taken[:, None, :, None] * (random >= low[:, None])
        fixed, no_fixed = (
            torch.cat((ends, window), -1),
            torch.cat((no_end, no_neighbour), -1),
        )
        seen, outside = (
            torch.cat((of_all.unsqueeze(1).expand(-1, self.num_heads, -1, -1), own), -1)
            for of_all, own in ((fixed, random), (no_fixed, none_left))
        )
        return seen.masked_fill(outside, 0), outside

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        length, size = query.shape[1], self.block_size
        lengths = real_lengths(query, pads)
        last = (lengths - 1).clamp(min=0) // size
        blocks = [
            pad_slots(x, size).unflatten(1, (-1, size)) for x in (query, key, value)
        ]
        count = blocks[0].shape[1]
        q, k, v = blocks
        output = self._sparse(q, k, v, *self.seen_blocks(last, count), lengths)
        number = torch.arange(count, device=last.device)
        # both global blocks of a row as one query
        rows = torch.arange(len(last), device=last.device)
        ends = torch.cat((blocks[0][:, 0], blocks[0][rows, last]), 1)
        ends = softmax_attention(
            ends,
            key,
            value,
            causal=False,
            dropout_p=self.dropout_p,
            key_padding_mask=pads,
        )[0]
        first, final = (x.unsqueeze(1) for x in ends.split(size, 1))
        output = torch.where(
            (number == last[:, None])[..., None, None, None], final, output
        )
        output = torch.where((number == 0)[:, None, None, None], first, output)
        return output.flatten(1, 2)[:, :length]

    def _sparse(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor,
        outside: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        """(B, G, c, H, D) each -> the same shape: blocks over the blocks they see."""
        batch, count, size, heads, width = query.shape
        index = seen.flatten(2)[..., None].expand(-1, -1, -1, size * width)

        def gathered(x: Tensor) -> Tensor:
            x = x.permute(0, 3, 1, 2, 4).reshape(batch, heads, count, size * width)
            return x.gather(2, index).view(batch, heads * count, keys, width)

        keys = seen.shape[-1] * size
        slots = seen[..., None] * size + torch.arange(size, device=seen.device)
        # a row without tokens sees a slot of zeros: an empty softmax is undefined
        visible = slots < lengths.clamp(min=1)[:, None, None, None, None]
        visible = (visible & ~outside[..., None]).view(batch, heads * count, 1, keys)
        output = F.scaled_dot_product_attention(
            query.permute(0, 3, 1, 2, 4).reshape(batch, heads * count, size, width),
            gathered(key),
            gathered(value),
            attn_mask=visible,
            dropout_p=self.dropout_p,
        )
        return output.unflatten(1, (heads, count)).permute(0, 2, 3, 1, 4)

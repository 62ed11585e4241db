"""Which blocks the kernels can take as one tile, and how. Imports no Triton."""

from __future__ import annotations

import torch

from ..backend import capability

BLOCK_SIZES = (16, 32, 64, 128)
# bytes of the largest tile whose backward fits a program's shared memory
LARGEST_TILE = {
    (8, 0): 32 * 1024,
    (8, 6): 16 * 1024,
    (8, 7): 16 * 1024,
    (8, 9): 16 * 1024,
    (9, 0): 32 * 1024,
    (10, 0): 16 * 1024,
}
LARGEST_TILE_ELSEWHERE = 8 * 1024


def why_block_is_no_tile(
    block_size: int, width: int, operands: torch.dtype, device: torch.device
) -> str | None:
    """The reason why the kernels cannot hold such a block, or None.

    Args:
        block_size: positions in a block.
        width: the wider of D and E.
        operands: dtype in which the products take their operands.
        device: where the kernels would run.
    """
    if block_size not in BLOCK_SIZES:
        return f"block_size={block_size}; its kernels take 16, 32, 64, 128"
    size = block_size * width * operands.itemsize
    limit = max(LARGEST_TILE.values())
    if device.type == "cuda":
        limit = LARGEST_TILE.get(capability(device), LARGEST_TILE_ELSEWHERE)
    if size > limit:
        return (
            f"block_size={block_size} with head width {width} in {operands} takes "
            f"{size} bytes; its kernels hold {limit} there"
        )
    return None


def num_warps(block_size: int, width: int) -> int:
    """Warps of a program: as many as keep the block's tiles in registers."""
    return 8 if block_size * width > 64 * 64 else max(1, block_size // 16)


def transposes_products(compute_capability: tuple[int, int]) -> bool:
    """Whether the backward transposes products, which saves registers.

    On Ampere and Ada only: newer devices multiply by other instructions, and on Hopper
    Triton 3.4 to 3.7.0 miscompiles this.
    """
    return compute_capability[0] == 8

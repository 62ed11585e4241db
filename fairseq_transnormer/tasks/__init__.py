"""fairseq tasks; importing them registers them."""

from .long_range_arena import LongRangeArenaTask

__all__ = ["LongRangeArenaTask"]

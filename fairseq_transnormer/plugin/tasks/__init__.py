"""fairseq tasks; importing them registers them."""

from .associative_recall import AssociativeRecallTask
from .long_range_arena import LongRangeArenaTask

__all__ = ["AssociativeRecallTask", "LongRangeArenaTask"]

"""fairseq tasks; importing them registers them."""

from . import associative_recall, long_range_arena  # noqa: F401

"""``python -m benchmarks COMMAND``: every benchmark, and the page made of them."""

import sys

from .commands import COMMANDS, main

__all__ = ["COMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())

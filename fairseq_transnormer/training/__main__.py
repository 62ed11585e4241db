"""Train by a whole composed configuration: ``python -m PACKAGE.training FILE.yaml``.

``python -m fairseq_transnormer train`` leaves such a file in a run's folder. Relative
paths in it begin in the working folder.
"""

import argparse
from pathlib import Path

from .processes import train_file

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML")
    train_file(parser.parse_args().file)

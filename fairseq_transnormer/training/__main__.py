"""Train by a composed configuration: ``python -m PACKAGE.training FILE.yaml``.

``python -m fairseq_transnormer train`` writes such a file to a run's folder. Its
relative paths start from the working folder.
"""

import argparse
from pathlib import Path

from .launch import train_file

if __name__ == "__main__":
    parser = argparse.ArgumentParser(f"python -m {__package__}", description=__doc__)
    parser.add_argument("path", type=Path, metavar="FILE", help="YAML")
    text = "where to copy it when the run begins"
    parser.add_argument("copy", type=Path, nargs="?", metavar="COPY", help=text)
    given = parser.parse_args()
    if not given.path.is_file():
        parser.error(f"{given.path}: no such file")
    train_file(**vars(given))

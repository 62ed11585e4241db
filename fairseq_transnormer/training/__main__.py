"""Train by a composed configuration: ``python -m PACKAGE.training FILE.yaml``.

``python -m fairseq_transnormer train`` writes such a file to a run's folder. Its
relative paths start from the working folder.
"""

import argparse
from pathlib import Path

from .launch import train_file

if __name__ == "__main__":
    parser = argparse.ArgumentParser(f"python -m {__package__}", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML")
    file = parser.parse_args().file
    if not file.is_file():
        parser.error(f"{file}: no such file")
    train_file(file)

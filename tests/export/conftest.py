"""Trained models, as for generation, and GPT-2's files, as for data_prep."""

from tests.data_prep.conftest import gpt2_dir
from tests.generation.conftest import pieces, t1, word_folder

__all__ = ["gpt2_dir", "pieces", "t1", "word_folder"]

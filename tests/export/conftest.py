"""Trained models, as for generation."""

from tests.generation.conftest import pieces, t1, word_folder

__all__ = ["pieces", "t1", "word_folder"]

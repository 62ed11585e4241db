"""GPT-2's files, as for data_prep."""

from tests.data_prep.conftest import gpt2_dir

__all__ = ["gpt2_dir"]

"""``--mask-whole-words``: where words begin among the units of the data."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fairseq import utils

from ..data.subword_files import find_subword_files, missing_units


def find_units_and_load(load_dataset, task, *arguments, **keywords):
    """Around tasks/masked_lm.py, load_dataset, which asks the task for ``args``.

    Raises:
        ValueError: the dictionary has subword units whose files are not beside it, or
            those of another kind.
    """
    if task.cfg.mask_whole_words:
        task.args = _units(task)
    return load_dataset(task, *arguments, **keywords)


def _units(task) -> Namespace:
    """What fairseq builds the units' encoder of; words are their own beginnings."""
    folder = Path(utils.split_paths(task.cfg.data)[0])
    files = list(map(str, find_subword_files([folder])))
    if not files:
        missing = missing_units(task.source_dictionary.symbols)
        if missing is not None:
            raise ValueError(
                f"task.mask_whole_words=True: no {missing} in {folder}; allowed: the "
                "files of the units that the data were cut into, beside dict.txt"
            )
        for symbol in task.source_dictionary.symbols:
            if symbol.endswith("@@") or symbol.startswith("##"):
                raise ValueError(
                    f"task.mask_whole_words=True: {symbol!r} in {folder / 'dict.txt'} "
                    "is a unit of subword-nmt or BERT; allowed: words, or units of "
                    "sentencepiece or GPT-2"
                )
        return Namespace(bpe=None)
    if len(files) == 1:
        return Namespace(bpe="sentencepiece", sentencepiece_model=files[0])
    encoder, merges = files
    return Namespace(bpe="gpt2", gpt2_encoder_json=encoder, gpt2_vocab_bpe=merges)

"""Blocks of generated examples, in parallel and the same for any number of workers.

Block b of a split has random numbers of its own, from (seed, split, b).
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from data_prep.folders.parallel import map_batches
from data_prep.folders.sequence_folder import Example
from data_prep.long_range_arena import listops_generator, pathfinder_generator
from data_prep.long_range_arena.listops_generator import ListOpsLaw
from fairseq_transnormer.data import SPLITS

BLOCK = 1000

Block = tuple[list[np.ndarray], np.ndarray]
Generator = Callable[[int, np.random.Generator], Block]


def listops_block(law: ListOpsLaw, count: int, random: np.random.Generator) -> Block:
    """Expressions and their values."""
    return listops_generator.generate(count, law, random)


def pathfinder_block(count: int, random: np.random.Generator) -> Block:
    """Pictures row by row and whether they are positive."""
    pictures = pathfinder_generator.generate(count, random)
    return list(pictures.images.reshape(count, -1)), pictures.labels


def generated_examples(
    generator: Generator, split: str, count: int, seed: int, workers: int
) -> Iterator[Example]:
    """``count`` examples of a split, of one sequence each."""
    sizes = [min(BLOCK, count - start) for start in range(0, count, BLOCK)]
    work = partial(_block, generator, seed, SPLITS.index(split))
    blocks = map_batches(work, enumerate(sizes), workers, batch_size=1)
    for sequences, labels in blocks:
        for sequence, label in zip(sequences, labels.tolist(), strict=True):
            yield (sequence,), label


def _block(
    generator: Generator, seed: int, split: int, numbered: list[tuple[int, int]]
) -> Block:
    parts = [
        generator(size, np.random.default_rng([seed, split, number]))
        for number, size in numbered
    ]
    sequences = itertools.chain.from_iterable(part[0] for part in parts)
    return list(sequences), np.concatenate([part[1] for part in parts])

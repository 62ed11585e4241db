"""Blocks and batches without fairseq are those of fairseq's language_modeling task."""

from argparse import Namespace

import numpy as np
import pytest
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from fairseq_transnormer.data.token_blocks import TokenBlocks
from tests.binary_data import numbered_words, write_binary_data
from tests.messages import refuses

WORDS = 4 + 40  # fairseq's own, and those of numbered_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Lines of 4 to 9 words and an end of line: 735 tokens in train."""
    lines = [
        " ".join(f"w{(3 * i + j) % 40}" for j in range(4 + i % 6)) for i in range(98)
    ]
    folder = tmp_path_factory.mktemp("text")
    return write_binary_data(folder, numbered_words(40), {"train": lines, "none": []})


def fairseqs(folder, length: int, size: int, seed: int, epoch: int | None):
    """The samples of an epoch, as fairseq's trainer draws them."""
    settings = vars(LanguageModelingConfig()) | {
        "data": str(folder),
        "tokens_per_sample": length,
        "sample_break_mode": "none",
        "dataset_impl": None,
        "use_plasma_view": False,
    }
    task = LanguageModelingTask.setup_task(Namespace(**settings))
    task.load_dataset("train")
    batches = task.get_batch_iterator(
        task.dataset("train"),
        max_sentences=size,
        required_batch_size_multiple=1,
        seed=seed,
        epoch=1,
    )
    for _ in range((epoch or 1) - 1):
        list(batches.next_epoch_itr())
    return list(batches.next_epoch_itr(shuffle=epoch is not None))


@pytest.mark.parametrize("epoch", [None, 1, 3])
@pytest.mark.parametrize(
    ("length", "size"), [(32, 4), (35, 4), (1, 50), (735, 2), (1000, 2), (64, 100)]
)
def test_batches_are_fairseqs(folder, length, size, epoch):
    blocks = TokenBlocks(folder / "train", length, WORDS)
    found = blocks.batches(size, seed=5, epoch=epoch)
    expected = fairseqs(folder, length, size, 5, epoch)
    assert len(found) == len(expected)
    for numbers, sample in zip(found, expected, strict=True):
        assert list(numbers) == sample["id"].tolist()
        tokens, targets, count = blocks.batch(numbers)
        assert np.array_equal(tokens, sample["net_input"]["src_tokens"])
        assert np.array_equal(targets, sample["target"])
        assert count == sample["ntokens"]


def test_another_seed_draws_other_batches(folder):
    blocks = TokenBlocks(folder / "train", 8, WORDS)
    one, two = (blocks.batches(4, seed, epoch=1) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_split_without_tokens_is_refused(folder):
    with refuses(ValueError, "none.bin", "no tokens"):
        TokenBlocks(folder / "none", 8, WORDS)


def test_a_token_beyond_the_dictionary_is_refused(folder):
    with refuses(ValueError, "train.bin", "token 86", "id 43", "0 to 42"):
        TokenBlocks(folder / "train", 8, WORDS - 1)

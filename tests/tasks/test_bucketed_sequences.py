"""Batches of like length: every example once, others each epoch, none at validation."""

import numpy as np
import pytest
import torch
from fairseq.data import data_utils

from fairseq_transnormer.data.labelled_sequences import LabelledSequences
from fairseq_transnormer.plugin.tasks.bucketed_sequences import BucketedSequences
from tests.data_prep.commands import synthetic_lra as main

BUCKET = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dest = tmp_path_factory.mktemp("lra")
    assert main(["--dest", str(dest), "--counts", "203", "16", "16"]) == 0
    return dest


def dataset(folder, name="text", shuffle=True):
    return BucketedSequences(LabelledSequences(folder / name, "train"), BUCKET, shuffle)


def batches(made, epoch=1):
    made.set_epoch(epoch)
    with data_utils.numpy_seed(1):
        order = made.ordered_indices()
    return made.batch_by_size(order, max_sentences=8)


@pytest.mark.parametrize("name", ["text", "retrieval"])
def test_rows_of_a_batch_are_of_like_length(folder, name):
    made = dataset(folder, name)
    found = batches(made)
    assert sorted(np.concatenate(found)) == list(range(203))
    assert sorted(map(len, found)) == [3] + [8] * 25
    wide = [b for b in found if np.ptp(made.sizes[b]) >= 2 * BUCKET]
    assert not wide
    # where a batch is of two buckets, these are neighbours
    mixed = [b for b in found if np.ptp(-(-made.sizes[b] // BUCKET)) > 0]
    assert len(mixed) <= made.sizes.max() // BUCKET


def test_batches_are_drawn_anew_each_epoch_and_alike_on_all_workers(folder):
    def sets(epoch):
        return {frozenset(each) for each in batches(dataset(folder), epoch)}

    assert sets(1) == sets(1)
    assert len(sets(1) & sets(2)) < 5
    assert not dataset(folder).can_reuse_epoch_itr_across_epochs
    fixed = [batches(dataset(folder, shuffle=False), epoch) for epoch in (1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(*fixed, strict=True))


def test_a_batch_has_its_rows_and_their_lengths(folder):
    made = dataset(folder, "retrieval")
    ids = [5, 0, 17]
    batch = made.collater([made[i] for i in ids])
    assert batch["nsentences"] == 3 and list(batch["id"]) == ids
    for k, (tokens, lengths) in enumerate(
        zip(*(batch["net_input"][key] for key in ("tokens", "lengths")), strict=True)
    ):
        for row, length, i in zip(tokens, lengths, ids, strict=True):
            expected = made.examples[i].tokens[k]
            assert torch.equal(row[:length], expected) and length == len(expected)
            assert not row[length:].any()
    assert batch["ntokens"] == sum(sum(made.examples[i].lengths) for i in ids)
    assert batch["target"].tolist() == [made.examples[i].label for i in ids]
    assert made.collater([]) == {}

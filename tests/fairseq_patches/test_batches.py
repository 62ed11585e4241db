"""Batches have every example of a split, whatever their sizes have to be."""

import numpy as np
import pytest
from fairseq.data import FairseqDataset, data_utils
from hypothesis import given
from hypothesis import strategies as st

import fairseq_transnormer  # noqa: F401 (the patches)


@given(
    sizes=st.lists(st.integers(1, 9), max_size=90),
    most=st.integers(1, 40),
    tokens=st.integers(9, 200),
    multiple=st.sampled_from([1, 2, 8]),
    by_function=st.booleans(),
)
def test_every_index_is_in_a_batch_and_in_its_order(
    sizes, most, tokens, multiple, by_function
):
    sizes = np.array(sizes, dtype=np.int64)
    indices = np.random.default_rng(len(sizes)).permutation(len(sizes))
    given_sizes = (sizes.__getitem__, None) if by_function else (None, sizes[indices])
    batches = data_utils.batch_by_size(
        indices,
        *given_sizes,
        max_tokens=tokens,
        max_sentences=most,
        required_batch_size_multiple=multiple,
    )
    found = np.concatenate([*batches, []])
    assert found.tolist() == indices.tolist()
    for batch in batches:
        assert 0 < len(batch) <= most
        assert len(batch) * sizes[batch].max() <= tokens
    for batch in batches[:-1]:
        assert len(batch) < multiple or len(batch) % multiple == 0


@pytest.mark.parametrize("length", [5, 13, 77])
def test_a_dataset_is_cut_without_a_rest(length):
    class Numbers(FairseqDataset):
        def num_tokens(self, index):
            return 1

    batches = Numbers().batch_by_size(
        iter(range(length)), max_sentences=32, required_batch_size_multiple=8
    )
    assert np.concatenate(batches).tolist() == [*range(length)]

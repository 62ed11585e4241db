"""How many updates a fine-tuning has."""

from itertools import islice

import pytest

from fairseq_transnormer.data.labelled_texts import updates_of_training


@pytest.mark.parametrize("examples", [1, 7, 32, 33, 100])
@pytest.mark.parametrize(
    ("batch", "devices", "accumulated"), [(4, 1, 1), (4, 2, 3), (32, 1, 1), (5, 3, 2)]
)
def test_updates_are_those_of_three_epochs(examples, batch, devices, accumulated):
    updates = 0
    for _ in range(3):
        batches = iter(range(0, examples, batch))
        while [*islice(batches, devices * accumulated)]:
            updates += 1
    # a group of batches that is begun is an update
    assert updates_of_training(examples, batch, devices, accumulated, 3) == updates

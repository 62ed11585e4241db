"""What is drawn anew in each epoch, where it ends, and that its batches have all."""

import json
import logging
import os
import shutil
import signal

import numpy as np
import pytest
from fairseq.data import FairseqDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from hypothesis import given
from hypothesis import strategies as st

import fairseq_transnormer.plugin  # noqa: F401 (keeps the last batch)
from fairseq_transnormer.training import positions
from tests.forked_trainings import logged
from tests.messages import assert_names
from tests.tiny_data import write_tiny_data

from .trainings import line_with

# 4 updates an epoch
MASKED = {
    "task": "masked_lm",
    "criterion": "masked_lm",
    "batch_size": 16,
    "max_update": 7,
    "save_interval_updates": 7,
}


@pytest.fixture
def masked(training):
    """masked(name, **options): a run of a masked model in a folder of its own."""

    def make(name, **options):
        run = training(1, **{**MASKED, **options})
        run.save_dir, run.arch = (
            run.save_dir.with_name(name),
            "roberta_transnormer_t2_tiny",
        )
        return run

    return make


@pytest.mark.parametrize("buffer", [10, pytest.param(0, marks=pytest.mark.slow)])
def test_masks_are_those_of_their_epoch(masked, buffer):
    """Whoever loads the data: this process, others, or others after a resumption."""
    options = {"data_buffer_size": buffer}
    expected = masked("here", num_workers=0, **options)
    whole = masked("others", num_workers=1, **options)
    for run in (expected, whole):
        assert run.run() == [0], run.text()
    losses = expected.losses()
    assert len(losses) == 7 and whole.losses() == losses
    resumed = masked("resumed", num_workers=1, **options)
    codes = resumed.run(("signalled_before", 5, signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], resumed.text()
    assert resumed.run() == [0], resumed.text()
    assert resumed.losses() == {n: losses[n] for n in (6, 7)}


def test_a_validation_on_the_training_data_changes_no_training(masked):
    """It has batches and masks of its own, in the middle of an epoch, too."""
    options = {"validate_interval_updates": 3, "num_workers": 0}
    alone = masked("alone", **options)
    both = masked("both", valid_subset="valid,train", **options)
    for run in (alone, both):
        assert run.run() == [0], run.text()
    assert len(alone.losses()) == 7 and both.losses() == alone.losses()
    assert both.validations() == alone.validations()
    records = logged(both.text(), "train")
    assert [each["epoch"] for each in records if "train_lr" in each] == [1, 2]
    found = [each["train_loss"] for each in records if "train_lr" not in each]
    assert len(found) == len(both.validations()) and found[0] > found[-1]
    ends = [run.state()["extra_state"]["train_iterator"] for run in (alone, both)]
    assert ends[0] == ends[1]


def test_batches_are_those_of_the_first_epoch_with_a_seed_for_each(training):
    """--update-ordered-indices-seed adds the epoch to the seed that draws batches."""
    flags = ("--update-ordered-indices-seed",)
    options = {"tokens_per_sample": 64, "batch_size": 16, "max_update": 4}
    whole, run = training(1, flags, **options), training(1, flags, **options)
    run.save_dir = run.save_dir.with_name("stopped")
    assert whole.run() == [0], whole.text()
    codes = run.run(("signalled_before", 3, signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], run.text()
    line_with(run.text(), "begin training epoch 2")
    assert run.run() == [0], run.text()
    losses = whole.losses()
    assert run.losses() == {n: losses[n] for n in (4,)}


def test_an_interval_of_the_log_may_span_an_epochs_end(training):
    """Here a run was stopped, which has the same records as one that was not."""
    options = {"tokens_per_sample": 64, "batch_size": 16, "max_update": 4}
    whole, run = (training(1, log_interval=3, **options) for _ in "12")
    run.save_dir = run.save_dir.with_name("stopped")
    assert whole.run() == [0], whole.text()
    codes = run.run(("signalled_before", 2, signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], run.text()
    assert run.run() == [0], run.text()
    assert run.losses() == whole.losses() and [*whole.losses()] == [3]
    of_epochs = []
    for each in (run, whole):
        records = map(json.loads, (each.save_dir / "train.log").open())
        of_epochs.append([x["train_loss"] for x in records if x["kind"] == "train"])
    assert of_epochs[0] == of_epochs[1] and len(of_epochs[0]) == 2


@pytest.mark.parametrize(
    ("stopped", "before", "after"),
    [pytest.param(5, 1, 4, marks=pytest.mark.slow), (3, 3, 2), (14, 1, 4)],
)
def test_an_epoch_ends_once_with_another_update_freq(
    training, undisturbed, stopped, before, after
):
    """Of an update that had begun, the batches come again."""
    run = training(1, save_interval_updates=100, max_update=stopped)
    batches = epoch_length(undisturbed)
    run.options["update_freq"] = before
    assert run.run() == [0], run.text()
    run.options |= {"update_freq": after, "max_update": 1000, "max_epoch": 2}
    assert run.run() == [0], run.text()
    assert run.went_on_at() == stopped
    line_with(run.text(), "begin training epoch 2")
    done = stopped * before // after * after
    updates = -(-(batches - done) // after) + -(-batches // after)
    assert max(run.losses()) == stopped + updates
    assert run.text().count("begin training epoch 1\n") == 1


@pytest.mark.parametrize(("left", "update_freq"), [(2, 6), (3, 5)])
def test_no_whole_update_is_left_of_an_epoch(
    training, undisturbed, data, left, update_freq
):
    """The last batch is left out, and what fills no update with it.

    fairseq has no validation to speak of then, and ends with an error.
    """
    batches = epoch_length(undisturbed)
    assert batches == 15
    flags, stopped = ("--skip-remainder-batch",), batches - left
    run = training(1, flags, save_interval_updates=100, max_update=stopped)
    run.data = f"{data}:{data}" if left == 3 else data
    assert run.run() == [0], run.text()
    run.options |= {"update_freq": update_freq, "max_update": 1000, "max_epoch": 2}
    assert run.run() == [0], run.text()
    line_with(run.text(), "epoch 1", "no full update left")
    # the second folder's
    assert ("loading train data for epoch 2" in run.text()) == (left == 3)
    assert max(run.losses()) == stopped + 2


def test_a_folder_that_changes_before_its_epoch_is_refused(training, data, tmp_path):
    """Of DIR1:DIR2 an epoch opens one."""
    second, other = tmp_path / "second", tmp_path / "other"
    shutil.copytree(data, second)
    write_tiny_data(other, lines=40)
    run = training(max_update=20, save_interval_updates=100)
    run.data = f"{data}:{second}"
    accident = ("replaced_before", 5, str(second), str(other))
    assert run.run(accident) == [1], run.text()
    line_with(run.text(), "ValueError", second, "training data have changed")
    assert max(run.losses()) == run.updates_of() == 15


def test_another_batch_size_goes_on_at_the_same_part_of_an_epoch(training, undisturbed):
    run = training(max_update=9, save_interval_updates=100)
    batches = epoch_length(undisturbed)
    assert run.run() == [0], run.text()
    run.options |= {"batch_size": 8, "max_update": 1000, "max_epoch": 1}
    assert run.run() == [0], run.text()
    line_with(run.text(), "epoch has", f"had {batches} ", "may repeat")
    fewer = -(-batches // 2)
    assert max(run.losses()) == 9 + fewer - 9 * fewer // batches


def test_a_rate_at_its_end_in_mid_epoch_ends_the_epoch(training):
    """--stop-min-lr is asked for at an epoch's end, whatever was killed before."""
    rates = {"lr_scheduler": "polynomial_decay", "warmup_updates": 0}
    rates |= {"total_num_update": 12, "stop_min_lr": 0.0015, "max_update": 1000}
    whole, run = (training(save_interval_updates=3, **rates) for _ in "ab")
    run.save_dir = run.save_dir.with_name("stopped")
    assert whole.run() == [0], whole.text()
    codes = run.run(("signalled_before", 8, signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], run.text()
    assert run.run() == [0], run.text()
    assert run.went_on_at() == 8
    losses = whole.losses()
    assert run.losses() == {n: losses[n] for n in range(9, max(losses) + 1)}
    for each in (run, whole):
        line_with(each.text(), "stopping training", "stop-min-lr")
        assert each.updates_of() == max(losses)


def epoch_length(undisturbed) -> int:
    run = undisturbed(max_epoch=1, max_update=1000, save_interval_updates=1000)
    return max(run.losses())


@pytest.mark.parametrize("grouped", [False, True])
def test_groups_of_batches_of_another_number_of_workers(caplog, grouped):
    """--grouped-shuffling has another order of the epoch's batches with each."""

    def share(workers):
        return EpochBatchIterator(
            FairseqDataset(), list, [[i] for i in range(16)], num_shards=workers,
            grouped_shuffling=grouped,
        )  # fmt: skip

    state = {"epoch": 1, "iterations_in_epoch": 2, "shuffle": True, "version": 2}
    state |= {"workers": 4, "batches_in_epoch": 16}
    caplog.set_level(logging.INFO)
    positions.restore(share(4), state)
    assert not caplog.records
    resumed = share(2)
    positions.restore(resumed, state)
    assert resumed.iterations_in_epoch == 4
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert bool(said) == grouped
    if grouped:
        assert_names(*said, "grouped_shuffling", "2 and 4")


def test_a_position_of_another_batch_size(caplog):
    """The same part of the epoch is done, whoever trained it."""
    state = {"epoch": 2, "iterations_in_epoch": 3, "shuffle": True, "version": 2}
    state |= {"workers": 2, "batches_in_epoch": 16}  # 6 of 16
    for batches, workers, position in ((8, 1, 3), (8, 2, 1), (32, 2, 6), (40, 1, 15)):
        epochs = EpochBatchIterator(
            FairseqDataset(), list, [[i] for i in range(batches)], num_shards=workers
        )
        caplog.clear()
        positions.restore(epochs, state)
        assert (epochs.epoch, epochs.iterations_in_epoch) == (2, position)
        assert_names(caplog.text, batches, 16, "epoch 2", "may repeat")


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

"""1, 2 and 4 workers train alike on the same update: real processes, gloo, float32.

What is summed in another order differs by rounding: 1e-6 relative in losses. Dropout is
off: workers that share an update draw other masks than one that accumulates it.
"""

import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from tests.messages import lines_naming
from tests.tiny_data import write_tiny_data

from .conftest import BATCHES, SEQUENCES_OF_TRAIN, SEQUENCES_OF_VALID, VALID_LINES
from .trainings import Training

TASKS = ["alm", "blm", "fine_tuning"]
# two show it, and four of fine_tuning, whose last workers have no sentences
SLOW = {("alm", 4), ("blm", 4)}


def pairs(*numbers):
    """Of a task and a number of workers."""
    return [
        pytest.param(
            task, workers, marks=[pytest.mark.slow] * ((task, workers) in SLOW)
        )
        for task in TASKS
        for workers in numbers
    ]


COUNTS = ("sample_size", "ntokens", "nsentences", "correct")


def assert_same_training(run: Training, one: Training) -> None:
    """Losses, counts and gradient norms of the updates that ``run`` made; weights."""
    expected = one.updates()
    for update, step in run.updates().items():
        same = {key: step[key] for key in COUNTS}
        assert same == {key: expected[update][key] for key in COUNTS}, update
        assert step["loss"] == pytest.approx(expected[update]["loss"], rel=1e-6)
        assert step["gnorm"] == pytest.approx(expected[update]["gnorm"], rel=1e-5)
    theirs = one.weights()
    for name, weight in run.weights().items():
        assert (weight - theirs[name]).abs().max() < 1e-5, name


@pytest.mark.parametrize(("task", "workers"), pairs(2, 4))
def test_workers_train_as_one(trained, task, workers):
    run, one = trained(task, workers), trained(task, 1)
    assert list(run.updates()) == list(range(1, 13))
    assert_same_training(run, one)


@pytest.mark.parametrize(("task", "workers"), pairs(4))
def test_the_epochs_end_is_ragged_and_each_sequence_trained_on_once(
    trained, task, workers
):
    """3 batches are left: one of 4 workers has none, one of 2 has one of its two."""
    batches = [step["batches"] for step in trained(task, 1).steps("train")]
    updates = -(-BATCHES[task] // 4)
    assert batches[:updates] == [4] * (updates - 1) + [3]
    first_epoch = trained(task, workers).steps("train")[:updates]
    assert sum(step["nsentences"] for step in first_epoch) == SEQUENCES_OF_TRAIN[task]


@pytest.mark.parametrize(("task", "workers"), pairs(1, 2, 4))
def test_validation_counts_each_sequence_once(trained, task, workers):
    """2 batches: of 4 workers two have none."""
    found, one = trained(task, workers).validations(), trained(task, 1).validations()
    assert found.keys() == one.keys() and 12 in found
    for update, sums in found.items():
        assert sums["nsentences"] == SEQUENCES_OF_VALID[task]
        if task == "alm":
            assert sums["ntokens"] == VALID_LINES * 21
        assert [sums[key] for key in COUNTS] == [one[update][key] for key in COUNTS]
        assert sums["loss"] == pytest.approx(one[update]["loss"], rel=1e-6)


@pytest.mark.parametrize(("task", "workers"), pairs(2, 4))
def test_the_log_has_the_same_validation(trained, task, workers):
    """Perplexity, accuracy, Matthews' correlation, F1, rounded as fairseq does."""
    one = trained(task, 1).metrics()
    assert len(one) >= 2 and one == trained(task, workers).metrics()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_metrics_are_scikit_learns_on_the_single_predictions(trained, workers):
    """Of the last checkpoint, which is the last validation's."""
    run = trained("fine_tuning", workers)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(run.save_dir / "checkpoint_last.pt")]
    )
    model.eval()
    data = task.load_dataset("valid")
    samples = [data.collater([data[i]]) for i in range(len(data))]
    truth = [int(each["target"]) for each in samples]
    head = task.cfg.classification_head_name
    predicted = [
        int(
            model(
                **each["net_input"], features_only=True, classification_head_name=head
            )[0].argmax()
        )
        for each in samples
    ]
    assert 0 < sum(predicted) < len(truth) == SEQUENCES_OF_VALID["fine_tuning"]
    logged = run.metrics()[-1]
    assert logged["valid_num_updates"] == "12"
    for name, metric in (
        ("accuracy", accuracy_score),
        ("f1", f1_score),
        ("mcc", matthews_corrcoef),
    ):
        expected = 100 * metric(truth, predicted)
        assert float(logged[f"valid_{name}"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("task", ["alm", pytest.param("blm", marks=pytest.mark.slow)])
def test_torchs_ddp_trains_as_one(trained, task):
    """fairseq's default, which overlaps the exchange with the backward pass."""
    run = trained(task, 2, ddp_backend="pytorch_ddp")
    assert_same_training(run, trained(task, 1))


@pytest.mark.parametrize(
    ("workers", "backend"),
    [
        *((1, "legacy_ddp"), (2, "legacy_ddp")),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((4, "legacy_ddp"), (2, "pytorch_ddp"))
        ),
    ],
)
def test_any_number_of_workers_resumes(trained, text, tmp_path, workers, backend):
    """From update 8 of 2 workers, in the middle of the second epoch."""
    before = trained("alm", 2)
    folder = tmp_path / "checkpoints"
    options = before.options | {"ddp-backend": backend}
    run = Training(text, folder, workers, options, arch=before.arch)
    run.save_dir.mkdir()
    shutil.copy(
        before.save_dir / "checkpoint_2_8.pt", run.save_dir / "checkpoint_last.pt"
    )
    assert run.run() == [0] * workers, run.text()
    assert list(run.updates()) == [9, 10, 11, 12]
    assert_same_training(run, trained("alm", 1))
    told = (f"{workers} workers", "2 were", "12 of 19 batches", "epoch 2")
    assert bool(lines_naming(run.log.read_text(), *told)) == (workers != 2)


@pytest.mark.parametrize("other", ["--lr", "data"])
def test_workers_with_another_command_are_refused(trained, text, tmp_path, other):
    """Each machine has a command and a folder of its own."""
    own = write_tiny_data(tmp_path / "own", 114)

    class Divided(Training):
        def arguments(self, rank):
            words = super().arguments(rank)
            if rank and other == "data":
                return [str(own), *words[1:]]
            return [*words, "--lr", "0.1"] if rank else words

    before = trained("alm", 2)
    run = Divided(text, tmp_path / "checkpoints", 2, before.options, arch=before.arch)
    assert 0 not in run.run(), run.text()
    name = "data.train_data_sha256" if other == "data" else "optimization.lr"
    assert lines_naming(run.text(), "worker 1", name, "worker 0")
    assert not [*run.save_dir.glob("*.pt")] and "train_inner" not in run.text()


def test_the_log_says_what_an_update_is(trained):
    log = trained("alm", 2).log.read_text()
    told = ("an update", "16 sequences", "2 workers", "4 at once", "2 accumulated")
    assert len(lines_naming(log, *told)) == 1


def test_weights_have_moved(trained):
    """Else all of the above would say nothing."""
    run = trained("alm", 1)
    first = torch.load(run.save_dir / "checkpoint_2_8.pt", weights_only=True)["model"]
    weights = run.weights()
    assert any((weights[name] - first[name]).abs().max() > 1e-3 for name in first)

"""The same command again resumes, whatever it started from; a finished run is done."""

import hashlib
import logging
import os
import shutil
import signal
import types
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_transnormer.training.folder_lock import LOCK, FolderLock
from fairseq_transnormer.training.start import Start, choose_start
from tests.binary_data import write_binary_data
from tests.messages import assert_names, refuses

from .trainings import LAST, line_with

RESETS = ("--reset-optimizer", "--reset-lr-scheduler", "--reset-dataloader")
WORLD_SIZE = "distributed_training.distributed_world_size"
BATCHING = ("dataset.batch_size_valid", "dataset.required_batch_size_multiple")


@pytest.fixture
def pretrained(undisturbed, tmp_path):
    """The last checkpoint of another run."""
    path = tmp_path / "pretrained.pt"
    shutil.copy(undisturbed().save_dir / "checkpoint_last.pt", path)
    return path


@pytest.mark.parametrize("option", ["restore_file", "finetune_from_model"])
def test_a_stopped_run_that_began_with_a_checkpoint(training, pretrained, option):
    flags = RESETS if option == "restore_file" else ()
    options = {option: pretrained, "max_update": 6, "num_workers": 1}
    whole, run = training(1, flags, **options), training(1, flags, **options)
    run.save_dir = run.save_dir.with_name("stopped")
    assert whole.run() == [0], whole.text()
    codes = run.run(("signalled_before", 4, signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], run.text()
    line_with(run.text(), "SIGTERM", os.EX_TEMPFAIL, "same command", "resumes")
    pretrained.unlink()  # it has done its part
    assert run.run() == [0], run.text()
    assert run.went_on_at() == 4
    losses = whole.losses()
    assert run.losses() == {n: losses[n] for n in (5, 6)}
    ours, theirs = run.state(), whole.state()
    for name, weights in theirs["model"].items():
        assert torch.equal(ours["model"][name], weights), name


def test_a_training_without_fairseq_is_refused(training, pretrained):
    run = training()
    last = run.save_dir / "checkpoint_last.pt"
    state = torch.load(pretrained, weights_only=True)
    state["extra_state"] = {"train_iterator": None}
    run.save_dir.mkdir()
    torch.save(state, last)
    assert run.run() == [1]
    line_with(run.text(), "ValueError", last, "without fairseq", "--save-dir")


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_finished_run_changes_nothing(training, undisturbed, workers):
    whole, run = undisturbed(workers), training(workers)
    shutil.copytree(whole.save_dir, run.save_dir)
    before = content(run.save_dir)
    assert run.run() == [0] * workers, run.text()
    assert not run.losses() and content(run.save_dir) == before
    line_with(run.text(), "finished", f"max_update={LAST}")


def content(folder):
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest())
        for path in folder.iterdir()
        if path.name != LOCK
    }


@pytest.fixture
def folder(tmp_path):
    """A run's folder."""
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def start(folder, monkeypatch):
    """start(**settings): where a run in ``folder``, of any model, would start.

    groups: settings of other groups, by their names with a point.
    """
    monkeypatch.setattr(f"{Start.__module__}.check_checkpoint", lambda *x, **y: 0)

    def choose(valid_data="a hash", groups=None, **settings):
        cfg = OmegaConf.structured(FairseqConfig)
        given = {"save_dir": folder, "max_update": 100, "valid_subset": "valid"}
        for name, value in (given | settings).items():
            places = (cfg.checkpoint, cfg.optimization, cfg.dataset)
            place = next(each for each in places if name in each)
            place[name] = str(value) if isinstance(value, Path) else value
        for name, value in (groups or {}).items():
            OmegaConf.update(cfg, name, value)
        trainer = types.SimpleNamespace(checkpoint_suffix="", cfg=cfg)
        trainer.training_data = {"valid_data_sha256": valid_data}
        lock = FolderLock(folder)
        try:
            return choose_start(trainer, lock)
        finally:
            lock.release()

    return choose


def save(path, updates=5, started_from=None, **others):
    """A checkpoint as fairseq writes it; without ``started_from`` as it did alone."""
    extra = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 3}, **others}
    if started_from is not None:
        extra["started_from"] = started_from
    torch.save(
        {
            "model": {"weight": torch.randn(3)},
            "optimizer_history": [{"num_updates": updates}],
            "last_optimizer_state": {},
            "extra_state": extra,
            "cfg": {"checkpoint": {}},
        },
        path,
    )


REQUESTS = [
    {},
    {"restore_file": "X"},
    {"restore_file": "X", "reset_optimizer": True},
    {"finetune_from_model": "X"},
    {"reset_optimizer": True, "reset_dataloader": True},
]


def filled(request, source):
    return {name: source if value == "X" else value for name, value in request.items()}


@pytest.mark.parametrize("request_", REQUESTS)
def test_the_same_request_resumes(start, folder, tmp_path, request_):
    source, moved = tmp_path / "source.pt", tmp_path / "moved.pt"
    save(source, 70)
    fresh = start(**filled(request_, source))
    assert fresh.updates is None and fresh.finished is None
    save(folder / "checkpoint_last.pt", 7, fresh.started_from)
    for same in (filled(request_, source), {}):  # nothing asked for: as fairseq
        assert start(**same) == Start(fresh.started_from, 7)
    source.rename(moved)
    assert start(**filled(request_, moved)).updates == 7
    assert start(**filled(request_, source)).updates == 7  # by its name


@pytest.mark.parametrize("before", REQUESTS)
@pytest.mark.parametrize("request_", REQUESTS[1:])
def test_another_request_is_refused(start, folder, tmp_path, before, request_):
    """It would overwrite what the run has trained, from update 0 on."""
    one, other = tmp_path / "one.pt", tmp_path / "other.pt"
    save(one), save(other)
    last = folder / "checkpoint_last.pt"
    save(last, 7, start(**filled(before, one)).started_from)
    asked = filled(request_, other)
    if asked == before:  # resets alone
        pytest.skip("the same request")
    options = [f"--{name.replace('_', '-')}" for name in asked]
    with refuses(ValueError, last, "update 7", "--save-dir", *options):
        start(**asked)
    assert start(**asked, no_save=True).updates is None  # nothing is overwritten


def test_another_file_of_the_same_name_is_told_of(start, folder, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "filelock")
    source = tmp_path / "source.pt"
    save(source)
    save(folder / "checkpoint_last.pt", 7, start(restore_file=source).started_from)
    assert start(restore_file=source).updates == 7 and not caplog.text
    save(source)
    assert start(restore_file=source).updates == 7
    assert_names(caplog.text, source, "changed", "--save-dir")


def test_a_run_of_fairseq_alone_tells_by_its_last_command(start, folder, tmp_path):
    source, last = tmp_path / "source.pt", folder / "checkpoint_last.pt"
    save(source), save(last)
    state = torch.load(last)
    state["cfg"]["checkpoint"] = {"finetune_from_model": str(source)}
    torch.save(state, last)
    assert start(finetune_from_model=source).updates == 5
    with refuses(ValueError, last, "--restore-file"):
        start(restore_file=source)


def test_a_last_checkpoint_by_its_name_is_no_request(start, folder):
    last = folder / "checkpoint_last.pt"
    save(last, 7)
    assert start(restore_file=last).updates == 7


def test_a_checkpoint_without_an_optimizer_does_not_begin_again(start, folder):
    last = folder / "checkpoint_last.pt"
    save(last, 7)
    state = torch.load(last)
    del state["last_optimizer_state"]
    torch.save(state, last)
    with refuses(ValueError, last, "--no-save-optimizer-state", "update 7"):
        start()
    assert start(max_update=7).finished


STOPPED_EARLY = {"early_stopping": {"best": 1.0, "num_runs": 3}}


@pytest.mark.parametrize(
    ("settings", "state", "named"),
    [
        ({"max_update": 5}, {}, "max_update=5"),
        ({"max_update": 4}, {}, "max_update=4"),
        ({"max_epoch": 2}, {"train_iterator": {"epoch": 3}}, "max_epoch=2"),
        ({"patience": 3}, STOPPED_EARLY, "patience=3"),
        (
            {"stop_time_hours": 2},
            {"previous_training_time": 7201.0},
            "stop_time_hours=2.0",
        ),
    ],
)
def test_what_finishes_a_run(start, folder, settings, state, named):
    save(folder / "checkpoint_last.pt", 5, **state)
    before = content(folder)
    assert_names(start(**settings).finished, named)
    assert content(folder) == before
    assert not start().finished
    more = {name: 2 * value for name, value in settings.items()}
    assert not start(**more).finished


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ({"best_checkpoint_metric": "loss"}, ()),
        ({"best_checkpoint_metric": "accuracy"}, ("best_checkpoint_metric=accuracy",)),
        (
            {"maximize_best_checkpoint_metric": True},
            ("maximize_best_checkpoint_metric=True",),
        ),
    ],
)
def test_validations_by_another_metric_do_not_finish_a_run(
    start, folder, before, found
):
    last = folder / "checkpoint_last.pt"
    save(last, 5, **STOPPED_EARLY)
    state = torch.load(last)
    state["cfg"]["checkpoint"] = before
    torch.save(state, last)
    resumed = start(patience=3)
    assert bool(resumed.finished) == (not found)
    assert resumed.validated_by == tuple(f"checkpoint.{each}" for each in found)


SMOOTHED = {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}
MASKED = {
    "_name": "masked_lm", "data": "a", "mask_prob": 0.15, "tokens_per_sample": 64,
    "sample_break_mode": "none", "seed": 1, "batch_size": 8,
}  # fmt: skip


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize(
    ("group", "before", "changed", "is_other"),
    [
        ("criterion", SMOOTHED, {"label_smoothing": 0.2}, True),
        ("criterion", {"_name": "cross_entropy"}, {"_name": "adaptive_loss"}, True),
        ("criterion", {"_name": "masked_lm"}, {"_name": "chunked_masked_lm"}, False),
        *(
            ("dataset", {name: None}, {name: value}, True)
            for name, value in (("max_valid_steps", 3), ("combine_valid_subsets", True))
        ),
        # fairseq takes the first of several
        ("dataset", {"valid_subset": "a,b"}, {"valid_subset": "a"}, False),
        ("dataset", {"valid_subset": "b,a"}, {"valid_subset": "a,b"}, True),
        *(
            ("task", MASKED, {name: value}, name not in ("data", "batch_size"))
            for name, value in (
                *(("mask_prob", 0.3), ("tokens_per_sample", 32), ("seed", 2)),
                *(("sample_break_mode", "eos"), ("data", "b"), ("batch_size", 16)),
            )
        ),
    ],
)
def test_validations_by_other_settings(
    start, folder, tmp_path, group, before, changed, is_other, restores
):
    path = tmp_path / "other.pt" if restores else folder / "checkpoint_last.pt"
    save(path, 5)
    state = torch.load(path)
    common = {"common": {"seed": 1}, "dataset": {"batch_size": 8}}
    state["cfg"] |= common | {group: {**common.get(group, {}), **before}}
    torch.save(state, path)
    groups = {f"{group}.{k}": v for k, v in (before | changed).items()}
    found = start(groups=groups, **{"restore_file": path} if restores else {})
    ((name, _),) = changed.items()
    figure = str(before[name]).partition(",")[0]
    assert found.validated_by == (f"{group}.{name}={figure}",) * is_other


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("name", ["common.seed", WORLD_SIZE, *BATCHING])
def test_validations_by_other_samples(start, folder, name, steps):
    last, (group, key) = folder / "checkpoint_last.pt", name.split(".")
    save(last, 5)
    state = torch.load(last)
    state["cfg"][group] = {key: 1}
    torch.save(state, last)
    found = start(groups={name: 4}, max_valid_steps=steps)
    assert found.validated_by == (f"{name}=1",) * bool(steps)


@pytest.mark.parametrize("way", ["resume", "restore_file"])
def test_the_best_of_other_validation_data_is_not_the_best(
    training, undisturbed, data, tmp_path, way
):
    """None would ever be better than that of before, as it stands here."""
    run = training(max_update=LAST + 3, patience=3, keep_best_checkpoints=1)
    run.data = tmp_path / "other"
    shutil.copytree(data, run.data)
    words = Dictionary.load(str(data / "dict.txt"))
    write_binary_data(run.data, words, {"valid": ["word1 word2 word3"] * 9})
    state = undisturbed().state()
    state["extra_state"]["best"] = 0.001
    if way == "resume":
        last = run.save_dir / "checkpoint_last.pt"
    else:
        last = run.options[way] = tmp_path / "pretrained.pt"
    last.parent.mkdir(exist_ok=True)
    torch.save(state, last)
    if way == "resume":
        shutil.copy(last, run.save_dir / "checkpoint.best_loss_0.0010.pt")
    assert run.run() == [0], run.text()
    assert_names(line_with(run.text(), "start again"), "valid_data_sha256")
    extra = run.state()["extra_state"]
    assert extra["best"] == extra["val_loss"] > 1
    assert run.updates_of("checkpoint_best.pt") == LAST + 3
    assert extra["early_stopping"] == {"best": extra["best"], "num_runs": 0}
    (best,) = run.save_dir.glob("checkpoint.best_loss_*.pt")
    assert run.updates_of(best.name) == LAST + 3


@pytest.mark.parametrize("request_", REQUESTS)
def test_the_newest_takes_the_place_of_a_last_one_that_is_missing(
    start, folder, tmp_path, request_, caplog
):
    """fairseq begins at update 0, and its checkpoints overwrite those of before."""
    source = tmp_path / "source.pt"
    save(source, 70)
    request = filled(request_, source)
    fresh = start(**request)
    save(folder / "checkpoint_1_6.pt", 6, fresh.started_from)
    save(folder / "checkpoint_best.pt", 4, fresh.started_from)
    newest, damaged = folder / "checkpoint_1_9.pt", folder / "checkpoint_1_12.pt"
    save(newest, 9, fresh.started_from)
    damaged.write_bytes(newest.read_bytes()[:-100])
    assert start(**request).updates == 9
    # fairseq would count it among the newest
    assert not damaged.exists() and damaged.with_suffix(".pt.damaged").exists()
    assert_names(caplog.text, folder / "checkpoint_last.pt", newest)
    assert (folder / "checkpoint_last.pt").read_bytes() == newest.read_bytes()
    assert start(max_update=9, **request).finished


def test_a_run_without_last_checkpoints_resumes_from_its_newest_each_time(
    start, folder
):
    """The one that took the last one's place is not written again."""
    never = {"no_last_checkpoints": True}
    save(folder / "checkpoint_1_6.pt", 6, start(**never).started_from)
    assert start(**never).updates == 6
    save(folder / "checkpoint_1_9.pt", 9, start(**never).started_from)
    assert start(**never).updates == 9
    # a run that ends changes no file
    (folder / "checkpoint_last.pt").unlink()
    assert start(max_update=9, **never).finished
    assert not (folder / "checkpoint_last.pt").exists()
    # what is older, or of another start, does not
    save(folder / "checkpoint_last.pt", 12, start(**never).started_from)
    assert start(**never).updates == 12
    save(folder / "checkpoint_1_15.pt", 15, start(**never).started_from)
    assert start().updates == 12


def test_no_run_begins_over_the_checkpoints_of_another(start, folder):
    """Its own could replace them, or be removed as the oldest."""
    best = folder / "checkpoint_best.pt"
    save(best, 9)
    for request in (
        {"restore_file": best, "reset_optimizer": True},
        {"finetune_from_model": best},
    ):
        option = "--" + next(iter(request)).replace("_", "-")
        with refuses(ValueError, best, option, "--save-dir"):
            start(**request)
    state = torch.load(best, weights_only=True)
    state["last_optimizer_state"] = None
    torch.save(state, best)
    with refuses(ValueError, best, "--no-save-optimizer-state", "update 9"):
        start()
    assert start(max_update=9).finished
    assert not (folder / "checkpoint_last.pt").exists()


def test_a_finished_run_that_is_damaged_is_not_done(start, folder):
    last = folder / "checkpoint_last.pt"
    save(last, 5), save(folder / "checkpoint_1_3.pt", 3)
    damaged = bytearray(last.read_bytes())
    offset = damaged.index(torch.load(last)["model"]["weight"].numpy().tobytes())
    damaged[offset] ^= 1
    last.write_bytes(damaged)
    assert start(max_update=5) == Start(start().started_from, 3)

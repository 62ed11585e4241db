"""Looks at a run's settings and builds its model: mistakes show before any training."""

import functools
import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...training.config import compose
from ..errors import ReproduceError

# the vocabulary decides nothing here, and would take most of the time
FEW_WORDS = 8


class _Dictionary:
    def __len__(self) -> int:
        return FEW_WORDS

    def pad(self) -> int:
        return 1


# what else decides a setting that the runner gives to each run
DECIDED_BY = {
    "checkpoint.finetune_from_model": "the pre-training that a row names",
    "checkpoint.save_dir": "--runs-dir",
    "common.cpu": "--gpus",
    "common.seed": "--seeds",
    "common.user_dir": "the package that runs it",
    "dataset.valid_subset": "reports, whose figures are of valid and test",
    "distributed_training.distributed_world_size": "--gpus-per-run",
    "model._name": "a row's configuration",
    "task._name": "a row's configuration",
    "task.data": "--data TASK=DIR",
}
# a run that is resumed and reported has validations and checkpoints
NEVER = ("checkpoint.no_last_checkpoints", "checkpoint.no_save")
NEVER += ("dataset.disable_validation",)


def check_settings(
    configs: Path, primary: str, given: Mapping[str, Any], fixed: Collection[str]
) -> None:
    """Look at the settings that a table, a preset or a command changes.

    Args:
        configs, primary: the configuration whose settings they are.
        given: key -> value.
        fixed: keys that the runner gives a value to, whatever is asked for.

    Raises:
        ReproduceError: one of them is fixed, or would leave the run without a figure,
            or the configuration has no such setting.
    """
    for key, value in given.items():
        if key in fixed or key.endswith("._name") and key in DECIDED_BY:
            instead = DECIDED_BY.get(key, "the data and the devices of the run")
            raise ReproduceError(
                f"{key}: the runner sets it itself; decided by: {instead}"
            )
        if key in NEVER and value:
            raise ReproduceError(
                f"{key}={value}; allowed: false: figures are of the validations and "
                "checkpoints of a run"
            )
        if "." not in key and not (configs / key).is_dir():
            raise ReproduceError(
                f"{key}: no setting, and no folder of {configs}; allowed: GROUP.NAME, "
                "as optimization.lr"
            )
    # a group's name chooses the settings that it has
    chosen = {k: v for k, v in given.items() if "." not in k or k.endswith("._name")}
    base = compose(configs, primary, chosen)  # registers the plugin's names, too
    for key, value in chosen.items():
        _check_name(key, value)
    for key in given.keys() - chosen.keys():
        group, _, name = key.partition(".")
        known = base.get(group)
        if not isinstance(known, dict):
            groups = ", ".join(each for each in base if isinstance(base[each], dict))
            raise ReproduceError(f"{key}: no group {group!r}; allowed: {groups}")
        # those of models are looked at as the model is built
        if group != "model" and name not in known:
            near = get_close_matches(name, known, n=3) or sorted(known)
            allowed = ", ".join(f"{group}.{each}" for each in near)
            raise ReproduceError(f"{key}: no such setting; allowed, as: {allowed}")


def _check_name(key: str, value: Any) -> None:
    """Raise ReproduceError for an optimizer, criterion, ... that is not registered."""
    from fairseq.registry import REGISTRIES

    group, _, name = key.partition(".")
    if name != "_name" or group not in REGISTRIES:
        return
    known = REGISTRIES[group]["registry"]
    if str(value) not in known:
        near = get_close_matches(str(value), known, n=3) or sorted(known)
        raise ReproduceError(f"{key}={value}; allowed, as: {', '.join(near)}")


def check_updates(updates: Any) -> None:
    """Raise ReproduceError unless a training ends after so many updates."""
    if type(updates) is not int or updates < 1:
        raise ReproduceError(
            f"optimization.max_update={updates}; allowed: a whole number from 1"
        )


def check_model(model: dict[str, Any]) -> None:
    """Raise ReproduceError if the model refuses a value; it says which."""
    _build(json.dumps(model, sort_keys=True))


@functools.cache
def _build(model: str) -> None:
    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import FairseqTask
    from omegaconf import OmegaConf

    class Task(FairseqTask):
        source_dictionary = target_dictionary = _Dictionary()
        # of a classifier's task
        vocabulary_size, num_classes, num_sequences = FEW_WORDS, 2, 1

    configuration = OmegaConf.create(json.loads(model))
    try:
        MODEL_REGISTRY[configuration._name].build_model(configuration, Task(None))
    except ValueError as error:
        raise ReproduceError(f"model {configuration._name}: {error}") from error

"""What of a configuration decides a run's figures, and in what two runs differ."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..modules.registry import unused_options
from ..training.config import Configuration, flattened, get

Settings = dict[str, Any]
# of the machine, or of how a run is watched; data and weights have fingerprints
NOT_SETTINGS = (
    *("common.user_dir", "common.cpu", "common.log_", "common.tensorboard_logdir"),
    *("common.wandb_project", "task.data", "dataset.num_workers"),
    *("checkpoint.save_dir", "checkpoint.finetune_from_model", "checkpoint.keep_"),
    *("checkpoint.restore_file", "distributed_training."),
    # on other devices an update has others of these factors
    *("dataset.batch_size", "optimization.update_freq"),
    # how a model is computed, or watched
    *("model.backend", "model.gradient_statistics", "model.peak_tflops"),
    *("model.checkpoint_activations", "model.compile_layers", "model.cuda_graphs"),
)
SEQUENCES = "sequences_per_update"
VALID_BATCH, VALID_STEPS = "dataset.batch_size_valid", "dataset.max_valid_steps"
# groups that choose a class by their name
NAMED = ("model", "task", "criterion", "optimizer", "lr_scheduler")
ADAM_ON_A_GPU = {"use_old_adam", "fp16_adam_stats", "tpu"}


def settings_of(configuration: Configuration) -> Settings:
    """Dotted key -> value, without fairseq's defaults and what decides no figure.

    An update has ``sequences_per_update``, of all devices and accumulated batches
    together; of a training by tokens, with no batch size, batches.
    """
    flat = flattened(configuration)
    model = flat.get("model.attention_types") or ""
    unread = {f"model.{name}" for name in unused_options(model)} if model else set()
    named = {k: v.get("_name") for k, v in configuration.items() if isinstance(v, dict)}
    defaults = _defaults(tuple((k, name) for k, name in named.items() if name))
    found = {
        key: value
        for key, value in flat.items()
        if not key.startswith(NOT_SETTINGS)
        and key not in unread
        and not _is_default(key, value, flat, defaults)
    }
    if flat.get("optimizer._name") == "fused_adam":  # the same sums
        found["optimizer._name"] = "adam"
        for name in ADAM_ON_A_GPU:
            found.pop(f"optimizer.{name}", None)
    devices = get(configuration, "distributed_training.distributed_world_size") or 1
    sequences = (get(configuration, "dataset.batch_size") or 1) * devices
    sequences *= (get(configuration, "optimization.update_freq") or [1])[0]
    found[SEQUENCES] = sequences
    if flat.get(VALID_STEPS) is not None:  # of each device: so many texts are validated
        found[VALID_BATCH] = (flat.get(VALID_BATCH) or 1) * devices
    return json.loads(json.dumps(found))


def _is_default(key: str, value: Any, flat: Settings, defaults: Settings) -> bool:
    """Whether fairseq has the value by itself.

    Defaults of models change with this package, and count; fairseq's do not change.
    """
    group, _, name = key.partition(".")
    if group == "model":
        return False
    if key not in defaults:
        return value is None or (name == "_name" and group not in NAMED)
    default = defaults[key]
    if isinstance(default, str) and default.startswith("${"):
        default = flat.get(default[2:-1])  # it follows another key
    return default == value


@functools.cache
def _defaults(names: tuple[tuple[str, str], ...]) -> Settings:
    """fairseq's, of its own groups and of these dataclasses."""
    from .. import plugin  # noqa: F401, I001  # it registers ours
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY
    from omegaconf import OmegaConf

    def plain(kind: Any) -> Any:
        return OmegaConf.to_container(OmegaConf.structured(kind), enum_to_str=True)

    found = {k: v for k, v in plain(FairseqConfig).items() if isinstance(v, dict)}
    for group, name in names:
        registry = REGISTRIES.get(group, {}).get("dataclass_registry", {})
        if group == "task":
            registry = TASK_DATACLASS_REGISTRY
        if registry.get(name) is not None:
            found[group] = plain(registry[name])
    return flattened(found)


def fingerprint_of(settings: Settings) -> str:
    """16 hexadecimal digits."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A phrase for each key whose value is another."""
    return [
        f"{key}={now.get(key)!r}, and {there.get(key)!r} there"
        for key in sorted({*there, *now})
        if there.get(key) != now.get(key)
    ]

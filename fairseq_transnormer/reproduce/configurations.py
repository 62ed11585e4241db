"""fairseq's configurations: composing them by Hydra, and telling two apart."""

import functools
import json
import logging
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import ReproduceError

Configuration = dict[str, Any]


def compose(configs: Path, primary: str, overrides: dict[str, Any]) -> Configuration:
    """What fairseq-hydra-train would train with, defaults included, all resolved.

    Args:
        configs: the folder of configurations.
        primary: name of a file in it.
        overrides: key -> value; a key without a dot chooses a file of that folder.

    Raises:
        ReproduceError: there is no such configuration, or Hydra refuses a value.
    """
    if not (configs / f"{primary}.yaml").is_file():
        known = ", ".join(sorted(path.stem for path in configs.glob("*.yaml")))
        raise ReproduceError(
            f"configuration {primary!r} is not in {configs}; allowed: {known}"
        )
    return json.loads(_composed(configs, primary, _as_overrides(overrides)))


@functools.cache
def _composed(configs: Path, primary: str, overrides: tuple[str, ...]) -> str:
    from fairseq.dataclass.initialize import add_defaults
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _register_schema(primary)
    try:
        with warnings.catch_warnings():  # of how fairseq finds its schema
            warnings.simplefilter("ignore")
            with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
                cfg = hydra_compose(primary, list(overrides), return_hydra_config=True)
        name = cfg.model._name
        if name not in MODEL_DATACLASS_REGISTRY:
            raise ReproduceError(
                f"configuration {primary!r}: model._name={name} is no registered model"
            )
        HydraConfig.instance().set_config(cfg)
        add_defaults(cfg)
        del cfg["hydra"]
        plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    except (HydraException, OmegaConfBaseException) as error:
        message = " ".join(str(error).split())
        raise ReproduceError(f"configuration {primary!r}: {message}") from error
    return json.dumps(plain)


@functools.cache
def _register_schema(primary: str) -> None:
    from fairseq.dataclass.initialize import hydra_init

    logging.getLogger("hydra").setLevel(logging.WARNING)
    hydra_init(primary)


def _as_overrides(overrides: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{'++' if '.' in key else ''}{key}={_as_text(value)}"
        for key, value in overrides.items()
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)


def flattened(configuration: Configuration, prefix: str = "") -> Configuration:
    """{"dataset.batch_size": 8, ...}"""
    flat: Configuration = {}
    for key, value in configuration.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flattened(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def differences(
    there: Configuration, now: Configuration, chosen: Iterable[str] = ()
) -> list[str]:
    """A phrase for each key of ``there``, or of ``chosen``, whose value has changed.

    Other keys that only ``now`` has are fields of newer code, whose default means what
    the older did.
    """
    old, new = flattened(there), flattened(now)
    return [
        f"{key}: {value!r} there, {new.get(key)!r} now"
        for key, value in old.items()
        if new.get(key) != value
    ] + [
        f"{key}: not set there, {new[key]!r} now"
        for key in sorted({*chosen} & (new.keys() - old.keys()))
    ]


def get(configuration: Configuration, key: str) -> Any:
    """The value of a dotted key, None if there is none."""
    value: Any = configuration
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value

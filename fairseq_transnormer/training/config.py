"""fairseq's configurations, composed by Hydra with every default in its place."""

from __future__ import annotations

import functools
import json
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Configuration = dict[str, Any]


class ConfigurationError(ValueError):
    """There is no such configuration, or a value of it is not allowed."""


@dataclass(frozen=True)
class Composed:
    """What fairseq-hydra-train makes of a configuration.

    Attributes:
        values: group -> key -> value, as training has them.
        environment: variables that Hydra sets for the training.
        folder: the run's, as the configuration names it.
    """

    values: Configuration
    environment: dict[str, str]
    folder: str


def compose(configs: Path, primary: str, overrides: Mapping[str, Any]) -> Configuration:
    """What fairseq-hydra-train would train with, defaults included, all resolved.

    Args:
        configs: the folder of configurations.
        primary: name of a file in it.
        overrides: key -> value; a key without a dot chooses a file of that folder.

    Raises:
        ConfigurationError: there is no such configuration, or Hydra refuses a value.
    """
    words = [f"{key}={_as_text(value)}" for key, value in overrides.items()]
    return compose_words(configs, primary, words).values


def compose_words(configs: Path, primary: str, overrides: list[str]) -> Composed:
    """``compose`` with overrides as on Hydra's command line, e.g. "model=alm_t1".

    Every key with a dot may be one that no file names, as with Hydra's "++".
    """
    if not (configs / f"{primary}.yaml").is_file():
        known = ", ".join(sorted(path.stem for path in configs.glob("*.yaml")))
        raise ConfigurationError(
            f"configuration {primary!r} is not in {configs}; allowed: {known}"
        )
    free = tuple(
        f"++{each}" if "." in each.partition("=")[0] and each[0] not in "+~" else each
        for each in overrides
    )
    return Composed(**json.loads(_composed(configs, primary, free)))


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
            raise ConfigurationError(
                f"configuration {primary!r}: model._name={name} is no registered model"
            )
        HydraConfig.instance().set_config(cfg)
        add_defaults(cfg)
        environment = OmegaConf.to_container(cfg.hydra.job.env_set)
        folder = cfg.hydra.run.dir
        del cfg["hydra"]
        plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    except (HydraException, OmegaConfBaseException) as error:
        # the cause says what is allowed, in its first line
        parts = [" ".join(str(error).split())]
        parts += str(error.__cause__ or "").splitlines()[:1]
        message = ": ".join(parts)
        raise ConfigurationError(f"configuration {primary!r}: {message}") from error
    return json.dumps({"values": plain, "environment": environment, "folder": folder})


@functools.cache
def _register_schema(primary: str) -> None:
    from fairseq.dataclass.initialize import hydra_init

    logging.getLogger("hydra").setLevel(logging.WARNING)
    hydra_init(primary)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value)


def quoted(text: str) -> str:
    """A string in Hydra's quotes: only backslashes in front of a quote are doubled."""
    return "'" + re.sub(r"(\\*)('|$)", _escaped, text) + "'"


def _escaped(found: re.Match) -> str:
    return found[1] * 2 + ("\\'" if found[2] else "")


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


def get(configuration: Configuration, key: str) -> Any:
    """The value of a dotted key, None if there is none."""
    value: Any = configuration
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value

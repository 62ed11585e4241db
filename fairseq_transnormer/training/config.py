"""fairseq's configurations, composed by Hydra with every default in its place."""

from __future__ import annotations

import functools
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

Configuration = dict[str, Any]


class ConfigurationError(ValueError):
    """There is no such configuration, or a value of it is not allowed."""


class Composed:
    """What fairseq-hydra-train makes of a configuration, before values are looked up.

    Attributes:
        environment: variables that Hydra sets for the training.
        folder: the run's, as the configuration names it.
    """

    def __init__(self, primary: str, cfg: Any) -> None:
        self._primary, self._cfg = primary, cfg
        with _refusing(primary):
            self.environment: dict[str, str] = dict(cfg.hydra.job.env_set)
            self.folder: str = cfg.hydra.run.dir
        del cfg["hydra"]

    def set(self, values: Mapping[str, Any]) -> None:
        """Dotted key -> value; what refers to the key, such as another one, follows."""
        from omegaconf import OmegaConf

        for key, value in values.items():
            OmegaConf.update(self._cfg, key, value)

    @property
    def values(self) -> Configuration:
        """Group -> key -> value, as training has them."""
        from omegaconf import OmegaConf

        with _refusing(self._primary):
            return OmegaConf.to_container(self._cfg, resolve=True, enum_to_str=True)


def compose(configs: Path, primary: str, overrides: Mapping[str, Any]) -> Configuration:
    """What fairseq-hydra-train would train with, defaults included, all resolved.

    Args:
        configs: the folder of configurations.
        primary: name of a file in it.
        overrides: key -> value; a key without a dot chooses a file of that folder.

    Raises:
        ConfigurationError: there is no such configuration, or Hydra refuses a value.
    """
    words = (f"{key}={_as_text(value)}" for key, value in overrides.items())
    return json.loads(_composed_once(configs, primary, tuple(words)))


@functools.cache
def _composed_once(configs: Path, primary: str, words: tuple[str, ...]) -> str:
    return json.dumps(compose_words(configs, primary, words).values)


def compose_words(configs: Path, primary: str, words: Iterable[str]) -> Composed:
    """``compose`` with overrides as on Hydra's command line, e.g. "model=alm_t1".

    Every key with a dot may be one that no file names, as with Hydra's "++".
    """
    if not (configs / f"{primary}.yaml").is_file():
        known = ", ".join(sorted(path.stem for path in configs.glob("*.yaml")))
        raise ConfigurationError(
            f"configuration {primary!r} is not in {configs}; allowed: {known}"
        )
    # first: it imports fairseq with logging as it is, and registers what files may name
    from .. import plugin  # noqa: F401, I001
    from fairseq.dataclass.initialize import add_defaults
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.hydra_config import HydraConfig

    _register_schema(primary)
    with _refusing(primary), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how fairseq finds its schema
        overrides = [
            f"++{word}"
            if "." in word.partition("=")[0] and word[0] not in "+~"
            else word
            for word in words
        ]
        with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
            cfg = hydra_compose(primary, overrides, return_hydra_config=True)
        name = cfg.model._name
        if name not in MODEL_DATACLASS_REGISTRY:
            raise ConfigurationError(
                f"configuration {primary!r}: model._name={name} is no registered model"
            )
        HydraConfig.instance().set_config(cfg)
        add_defaults(cfg)
    composed = Composed(primary, cfg)
    _check_keys(primary, cfg)
    return composed


def _check_keys(primary: str, cfg: Any) -> None:
    """Refuse what Hydra's "++" adds and nobody reads, such as a mistyped group."""
    from fairseq.dataclass.configs import FairseqConfig

    groups = FairseqConfig.__dataclass_fields__
    for group, values in cfg.items():
        if group not in groups:
            allowed = ", ".join(groups)
            raise ConfigurationError(
                f"configuration {primary!r} has no group {group!r}; allowed: {allowed}"
            )
        known = _known_keys(group, values)
        for key in values or () if known else ():
            if key not in known:
                raise ConfigurationError(
                    f"configuration {primary!r}: there is no {group}.{key}; allowed "
                    f"there: {', '.join(known)}"
                )


def _known_keys(group: str, values: Any) -> list[str]:
    """What a group may have; empty for any, which argparse's models have."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    chosen = {each: REGISTRIES[each]["dataclass_registry"] for each in REGISTRIES}
    chosen |= {"model": MODEL_DATACLASS_REGISTRY, "task": TASK_DATACLASS_REGISTRY}
    if group not in chosen:
        kind = getattr(FairseqConfig(), group, None)
    elif values is None or isinstance(values, str):
        return []
    elif values.get("_name") is None:
        return ["_name"]
    else:
        kind = chosen[group].get(values._name)
    return ["_name", *(each.name for each in fields(kind))] if kind else []


@contextmanager
def _refusing(primary: str) -> Iterator[None]:
    """Hydra's and OmegaConf's errors as ours."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        # the cause says what is allowed, in its first line
        parts = [" ".join(str(error).split())]
        parts += str(error.__cause__ or "").splitlines()[:1]
        message = ": ".join(parts)
        raise ConfigurationError(f"configuration {primary!r}: {message}") from error


@functools.cache
def _register_schema(primary: str) -> None:
    from fairseq.dataclass.initialize import hydra_init

    logging.getLogger("hydra").setLevel(logging.WARNING)
    hydra_init(primary)


def _as_text(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else json.dumps(value)


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

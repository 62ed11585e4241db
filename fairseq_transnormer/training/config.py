"""fairseq's configurations, composed by Hydra, with all defaults filled in."""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

Configuration = dict[str, Any]
# of a folder of configurations: the problems that classification=NAME chooses from
CLASSIFICATION = "base/classification.yaml"
# of fairseq's group ``optimization``: a value for each epoch, or one for all
LISTS = ("lr", "update_freq")


class ConfigurationError(ValueError):
    """The configuration does not exist, or a value of it is not allowed."""


class Composed(NamedTuple):
    """A configuration, with its environment and folder."""

    values: Configuration  # group -> key -> value, with defaults, all resolved
    environment: dict[str, str]  # environment variables for the training
    folder: str  # of the run


def compose(configs: Path, primary: str, overrides: Mapping[str, Any]) -> Configuration:
    """The values of a configuration.

    Args:
        configs: the folder of configurations.
        primary: name of a file in it.
        overrides: key -> value; a key without a dot chooses a file of that folder.

    Raises:
        ConfigurationError: the configuration does not exist, or Hydra refuses a value.
    """
    return json.loads(_composed_once(configs, primary, json.dumps(dict(overrides))))


@functools.cache
def _composed_once(configs: Path, primary: str, overrides: str) -> str:
    given = json.loads(overrides)
    words = [f"{key}={value}" for key, value in given.items() if "." not in key]
    values = {key: value for key, value in given.items() if "." in key}
    return json.dumps(compose_words(configs, primary, words, values).values)


def compose_words(
    configs: Path, primary: str, words: Iterable[str], then: Configuration | None = None
) -> Composed:
    """``compose`` with arguments of Hydra's command line, such as "model=alm_t1".

    Keys with a dot need not occur in a file. ``then`` sets such keys afterwards.
    """
    return filled_in(primary, read(configs, primary, words), then)


def read(configs: Path, primary: str, words: Iterable[str]) -> Any:
    """Hydra's result for files and arguments, unresolved; see ``compose_words``."""
    if not (configs / f"{primary}.yaml").is_file():
        known = ", ".join(sorted(path.stem for path in configs.glob("*.yaml")))
        raise ConfigurationError(
            f"configuration {primary!r} is not in {configs}; allowed: {known}"
        )
    # first: it keeps logging as it is, and registers the names that files may use
    from .. import plugin  # noqa: F401, I001
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    problems = configs / CLASSIFICATION
    known: Any = OmegaConf.load(problems) if problems.is_file() else {}
    for name, values in known.items():
        ConfigStore.instance().store(name, values, problems.stem, "_global_")
    # Hydra knows what files name; fairseq's schema refuses other keys, in filled_in
    forced = [
        f"++{word}" if "." in word.partition("=")[0] and word[0] not in "+~" else word
        for word in words
    ]
    with _refusing(primary), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Hydra 1.1, which fairseq needs
        with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
            return compose(primary, forced, return_hydra_config=True)


def filled_in(primary: str, found: Any, then: Configuration | None = None) -> Composed:
    """The result of ``read``, with fairseq's defaults, resolved.

    ``then`` sets dotted keys first; other values may refer to them.
    """
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    found = copy.deepcopy(found)
    with _refusing(primary):
        for key, value in (then or {}).items():
            OmegaConf.update(found, key, value, force_add=True)
        HydraConfig.instance().set_config(found)
        environment, folder = dict(found.hydra.job.env_set), found.hydra.run.dir
        groups: Any = OmegaConf.to_container(found)
        del groups["hydra"]
        for key in LISTS:
            value = groups["optimization"].get(key, [])
            if not isinstance(value, list) and "${" not in str(value):
                groups["optimization"][key] = [value]
        cfg = OmegaConf.merge(OmegaConf.structured(FairseqConfig), groups)
        add_defaults(cfg)
        plain: Any = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    for group, values in plain.items():
        # without a dataclass, as some older optimizers, or without a name
        is_any = OmegaConf.get_type(cfg, group) is dict
        if is_any and (group == "model" or "_name" not in values):
            message = f"{group}._name={values.get('_name')} is not registered; given: "
            raise ConfigurationError(message + ", ".join(values))
    return Composed(plain, environment, folder)


@contextmanager
def _refusing(primary: str) -> Iterator[None]:
    """Raise Hydra's and OmegaConf's errors as ConfigurationError."""
    from hydra.errors import HydraException
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        message = " ".join(each for each in str(error).split() if "_type=" not in each)
        if isinstance(error, ConfigKeyError) and error.parent_node is not None:
            message += f"; allowed there: {', '.join(error.parent_node)}"
        raise ConfigurationError(f"configuration {primary!r}: {message}") from error


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
    """The value of a dotted key, or None."""
    value: Any = configuration
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value

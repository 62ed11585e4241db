"""A configuration as the complete command line of fairseq-train, and back."""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from .config import Configuration, ConfigurationError, flattened, get

# chosen by an option, which then has options of its own
CHOICES = {
    "task": "--task",
    "model": "--arch",
    "criterion": "--criterion",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}
# fairseq-train has a scorer of translations, which no training of ours reads
NOT_COMPARED = ("scoring",)
USAGE = "fairseq-train DATA [options]; fairseq-train --help lists them"


def fairseq_train_arguments(configuration: Configuration) -> list[str]:
    """What follows ``fairseq-train`` for a composed configuration.

    Options are left out where the configuration has fairseq's own default, or that of
    the architecture.

    Raises:
        ConfigurationError: fairseq-train would train something else.
    """
    chosen = [configuration["task"]["data"]]
    chosen += ["--user-dir", configuration["common"]["user_dir"]]
    for group, option in CHOICES.items():
        chosen += [option, configuration[group]["_name"]]
    arguments = chosen + list(_options(configuration, chosen))
    told, meant = flattened(parse(arguments)), flattened(configuration)
    wrong = {
        key: f"{key}={meant.get(key)!r} would be {told.get(key)!r}"
        for key in sorted(told.keys() | meant.keys())
        if told.get(key) != meant.get(key) and key.split(".")[0] not in NOT_COMPARED
    }
    if wrong:
        raise ConfigurationError(f"for fairseq-train {'; '.join(wrong.values())}")
    return arguments


def parse(arguments: list[str]) -> Configuration:
    """The configuration that ``fairseq-train ARGUMENTS`` trains with."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    _, namespace = _parsed(arguments)
    try:
        with warnings.catch_warnings():  # of fairseq's way to Hydra
            warnings.simplefilter("ignore")
            cfg = convert_namespace_to_omegaconf(namespace)
    except HydraException as error:
        message = " ".join(str(error).split())
        raise ConfigurationError(f"fairseq-train cannot take it: {message}") from error
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


def _parsed(arguments: list[str]):
    """fairseq's parser, with the options of what was chosen, and its result."""
    from fairseq import options

    parser = options.get_training_parser()
    # its own is hundreds of lines, in front of what is wrong
    parser.prog, parser.usage = "fairseq-train", USAGE
    return parser, options.parse_args_and_arch(parser, arguments)


def _options(configuration: Configuration, chosen: list[str]) -> Iterator[str]:
    """The words for every value that is no default of its group."""
    parser, _ = _parsed(chosen)
    actions = {action.dest: action for action in parser._actions}
    told = {"data", "user_dir", *CHOICES, "arch"}
    for group in [*CHOICES, *(name for name in configuration if name not in CHOICES)]:
        values = configuration[group] or {}
        if not isinstance(values, dict):
            continue  # a key of the user's own, which no option stands for
        defaults = _defaults(group, values.get("_name"))
        for key, value in values.items():
            action = actions.get(key)
            if key in told or action is None or not action.option_strings:
                continue
            elsewhere = re.fullmatch(r"\$\{(\w+\.(\w+))\}", str(defaults.get(key)))
            if elsewhere and elsewhere[2] == key:
                # one option for both groups; the other one has it
                default = get(configuration, elsewhere[1])
            else:
                default = defaults.get(key)
            if value is not None and value != default:
                words = _words(action, value)
                told.update([key] if words else [])
                yield from words


def _defaults(group: str, name: str | None) -> dict[str, Any]:
    """What a group of the configuration has if nothing is said."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    registries = {
        "model": MODEL_DATACLASS_REGISTRY,
        "task": TASK_DATACLASS_REGISTRY,
        **{each: REGISTRIES[each]["dataclass_registry"] for each in REGISTRIES},
    }
    kind = registries[group].get(name) if group in registries else None
    found = getattr(FairseqConfig(), group, None)
    if kind is None and is_dataclass(found):
        # not that object itself: all configurations share it
        kind = found if isinstance(found, type) else type(found)
    defaults = {} if kind is None else vars(kind())
    return {key: getattr(value, "value", value) for key, value in defaults.items()}


def _words(action: argparse.Action, value: Any) -> list[str]:
    """An option with its value; none for a flag that says what its absence does."""
    named = "--" + action.dest.replace("_", "-")
    option = named if named in action.option_strings else action.option_strings[-1]
    if action.nargs == 0:
        return [option] if value == action.const else []
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    # a value that begins with a dash would be taken for an option
    text = str(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]

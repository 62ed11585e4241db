"""What fairseq makes of a Hydra configuration, and of a command line."""

import functools
import warnings

from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.training.config import compose_words
from tests.paths import CONFIGS


def _of_a_kind(primary: str, *overrides: str) -> tuple[str, ...]:
    """primary: a file of configs/, or a model, for its kind's file with it."""
    if (CONFIGS / f"{primary}.yaml").exists():
        return primary, *overrides
    return primary.partition("_")[0], f"model={primary}", *overrides


def hydra_config(primary: str, *overrides: str) -> DictConfig:
    """The configuration that ``train`` trains with; composed once."""
    return _composed_once(*_of_a_kind(primary, *overrides))


@functools.cache
def _composed_once(primary: str, *words: str) -> DictConfig:
    return OmegaConf.create(compose_words(CONFIGS, primary, words).values)


def hydra_config_now(primary: str, *overrides: str) -> DictConfig:
    """As fairseq-hydra-train composes it, in this moment's environment."""
    primary, *overrides = _of_a_kind(primary, *overrides)
    hydra_init(primary)
    try:
        with warnings.catch_warnings():  # of how fairseq finds its schema
            warnings.simplefilter("ignore")
            with initialize_config_dir(str(CONFIGS), version_base="1.1"):
                cfg = compose(primary, overrides=overrides, return_hydra_config=True)
    finally:  # ``train`` has none
        del ConfigStore.instance().repo[f"{primary}.yaml"]
    HydraConfig.instance().set_config(cfg)
    add_defaults(cfg)
    del cfg["hydra"]
    return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


def command_line_config(arguments: list[str]) -> DictConfig:
    """The configuration that fairseq-train trains with."""
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = convert_namespace_to_omegaconf(args)
    return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))

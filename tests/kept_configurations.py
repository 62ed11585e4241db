"""Command lines become configurations by Hydra once for each choice of components.

Hydra takes longer than the updates of a short training. What it has composed of a task,
a model, an optimizer, ... is kept in a folder that processes share; the next command
line changes those of its fields that differ.
"""

import contextlib
import functools
import hashlib
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fairseq
from fairseq.dataclass import utils
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)

_OF_HYDRA = {"initialize": utils.initialize, "compose": utils.compose}
_CONFIG = str(Path(fairseq.__file__).parent / "config")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="kept-configurations-")


def folder() -> Path:
    """Where this process and those that it starts keep them; removed at its end."""
    return Path(_folder().name)


def keep(folder: Path) -> None:
    """Let fairseq compose with what ``folder`` keeps from now on."""
    utils.initialize = lambda config_path: contextlib.nullcontext()
    utils.compose = functools.partial(_composed, folder)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """``keep``, for a while."""
    keep(folder())
    try:
        yield
    finally:
        vars(utils).update(_OF_HYDRA)


def _composed(folder: Path, config: str, overrides: list[str], **more) -> DictConfig:
    names = [each.partition("=")[0] for each in overrides]
    pairs = zip(overrides, names, strict=True)
    key = names, [each for each, name in pairs if "." not in name]
    path = folder / hashlib.sha256(repr(key).encode()).hexdigest()
    if not path.exists():
        with initialize_config_dir(_CONFIG):
            cfg = _OF_HYDRA["compose"](config, overrides=overrides, **more)
        plain = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            pickle.dump((set(overrides), OmegaConf.create(plain)), file)
        Path(file.name).replace(path)
        return cfg
    before, cfg = pickle.loads(path.read_bytes())
    changed = [each for each in overrides if each not in before]
    for each in OverridesParser.create().parse_overrides(changed):
        OmegaConf.update(cfg, each.key_or_group, each.value())
    return cfg

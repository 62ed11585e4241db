"""Work-arounds for fairseq, torch and numpy; each with its reason.

``apply`` runs once, before the models are registered.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import types
from pathlib import Path

import numpy

from . import dictionary_identity, literal_values, model_archives, safe_loading
from .missing_packages import INSTALL
from .wrapping import wrap

logger = logging.getLogger(__name__)

KNOWN_FAIRSEQ = ("0.12.2", "0.12.3")
HOW_TO_INSTALL = INSTALL["fairseq"]


def apply() -> None:
    """Check the fairseq at hand and make it work with today's torch and numpy.

    Raises:
        ImportError: fairseq cannot be imported; the message says how to install it.
    """
    _check_fairseq()
    _restore_numpy_compat()
    _load_checkpoints_safely()
    _unpack_archives_safely()
    _evaluate_no_code()
    _train_in_bf16_without_a_tpu()
    _compose_without_a_copy_of_all_settings()
    _train_alike_on_any_number_of_workers()
    _survive_faults()


def _check_fairseq() -> None:
    try:
        fairseq = _import_with_logging_unchanged("fairseq")
    except Exception as error:
        raise ImportError(
            f"fairseq cannot be imported ({error}); install it: {HOW_TO_INSTALL}"
        ) from error
    version = getattr(fairseq, "__version__", "unknown")
    if not version.startswith(KNOWN_FAIRSEQ):
        logger.warning(
            "fairseq %s has not been tested with fairseq_transnormer; tested: %s. %s",
            version,
            ", ".join(KNOWN_FAIRSEQ),
            HOW_TO_INSTALL,
        )


def _import_with_logging_unchanged(name: str) -> types.ModuleType:
    """fairseq/tasks/text_to_speech.py: ``logging.basicConfig(level=DEBUG)`` at import.

    A program that imports this package first would get every library's debug lines.
    fairseq's commands set their logging up before they import it.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    disabled = root.manager.disable
    logging.disable(logging.INFO)
    module = importlib.import_module(name)
    logging.disable(disabled)
    root.setLevel(level)
    for handler in set(root.handlers).difference(handlers):
        root.removeHandler(handler)
    return module


def _restore_numpy_compat() -> None:
    """fairseq/data/token_block_dataset.py: ``dtype=np.compat.long`` (break mode eos).

    numpy 2 has no ``np.compat``; without it fairseq-interactive and ``sample()`` fail.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)


def _load_checkpoints_safely() -> None:
    """fairseq/checkpoint_utils.py and distributed/utils.py: bare ``torch.load``.

    torch refuses fairseq's configuration objects there, so that resuming with several
    workers fails; and its error does not say what to do.
    """
    from fairseq import checkpoint_utils

    safe_loading.allow_fairseq_objects()
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", _look_before_loading)
    wrap(
        checkpoint_utils,
        "load_model_ensemble_and_task",
        dictionary_identity.check_loaded_models,
    )


def _look_before_loading(load, path, arg_overrides=None, *arguments, **keywords):
    from fairseq.file_io import PathManager

    # files that are elsewhere have been fetched by then
    local = Path(PathManager.get_local_path(path))
    safe_loading.read_checkpoint(local, mmap=True)
    state = load(path, arg_overrides, *arguments, **keywords)
    # Hydra unquotes texts: what comes out of it is not what went in
    safe_loading.check_settings(local, state, arg_overrides)
    dictionary_identity.note_loaded_checkpoint(path, state)
    return state


def _unpack_archives_safely() -> None:
    """fairseq/file_utils.py, load_archive_file: ``extractall``, then ``os.remove``."""
    from fairseq import file_utils

    wrap(file_utils, "load_archive_file", model_archives.load_archive)


def _evaluate_no_code() -> None:
    """fairseq/models/wav2vec/wav2vec2.py and 18 more: ``eval(cfg.SETTING)``."""
    literal_values.install()


def _train_in_bf16_without_a_tpu() -> None:
    """fairseq/options.py, parse_args_and_arch: ``if args.bf16: args.tpu = True``.

    With it ``fairseq-train --bf16`` asks for torch_xla on every machine. Where that is
    not installed, there is no TPU to train on. Hydra's ``common.bf16`` is not affected.
    """
    from fairseq import options

    wrap(options, "parse_args_and_arch", _without_a_tpu)


def _without_a_tpu(parse, *arguments, **keywords):
    parsed = parse(*arguments, **keywords)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(args, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False
    return parsed


def _compose_without_a_copy_of_all_settings() -> None:
    """hydra/_internal/config_repository.py: each composition copies what it reads from.

    With it every setting of every model, task and criterion that fairseq has ever
    registered: more than half of the time. Hydra changes the list of places alone, and
    gives out copies of what is stored.
    """
    from hydra._internal import config_repository

    wrap(config_repository.CachingConfigRepository, "__init__", _sharing_the_store)


def _sharing_the_store(init, repository, delegate):
    from hydra.core.config_store import ConfigStore

    init(repository, None)
    store = ConfigStore.instance()
    repository.delegate = copy.deepcopy(delegate, {id(store): store})


def _train_alike_on_any_number_of_workers() -> None:
    """fairseq's data parallelism: see data_parallel."""
    from . import data_parallel

    data_parallel.install()


def _survive_faults() -> None:
    """Training dies of signals, full disks and damaged files: see fault_tolerance."""
    from .fault_tolerance import training

    training.install()

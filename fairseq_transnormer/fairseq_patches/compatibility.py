"""What fairseq needs to run beside today's torch, numpy and Hydra."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import types

import numpy

from ..missing_packages import how_to_install


logger = logging.getLogger(__name__)

KNOWN_FAIRSEQ = ("0.12.2", "0.12.3")
HOW_TO_INSTALL = how_to_install("fairseq")


def import_fairseq() -> None:
    """Import fairseq, and leave logging as it is.

    Raises:
        ImportError: fairseq cannot be imported; the message says how to install it.
    """
    try:
        with logging_unchanged():
            fairseq = importlib.import_module("fairseq")
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


def restore_numpy_compat() -> None:
    """fairseq/data/token_block_dataset.py: ``dtype=np.compat.long`` (break mode eos).

    numpy 2 has no ``np.compat``; without it fairseq-interactive and ``sample()`` fail.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)


def train_bf16_without_tpu(parse, *arguments, **keywords):
    """Around options.py, parse_args_and_arch: ``if args.bf16: args.tpu = True``.

    With it ``fairseq-train --bf16`` asks for torch_xla on every machine. Where that is
    not installed, there is no TPU to train on. Hydra's ``common.bf16`` is not affected.
    """
    parsed = parse(*arguments, **keywords)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(args, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False
    return parsed


def share_config_store(init, repository, delegate):
    """Around hydra/_internal/config_repository.py, ``__init__``.

    Each composition copies what it reads from, and with it every setting of every
    model, task and criterion that fairseq has ever registered: more than half of the
    time. Hydra changes the list of places alone, and gives out copies of what is
    stored.
    """
    from hydra.core.config_store import ConfigStore

    init(repository, None)
    store = ConfigStore.instance()
    repository.delegate = copy.deepcopy(delegate, {id(store): store})

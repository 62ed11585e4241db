"""All changes of this package to fairseq, torch, numpy and Hydra: the table PATCHES.

``apply`` makes them once, before the models are registered. The table has no change
that a subclass or an argument can make. docs/upstream_notes.md describes fairseq's
other surprises.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import logging
import os
import shlex
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy
import torch

from ..checkpoints.safe_loading import allow_fairseq_objects
from ..missing_packages import HOW
from .literal_values import evaluate

logger = logging.getLogger(__name__)

# options of fairseq's commands
PATHS = ("data", "path", "save_dir", "restore_file", "finetune_from_model")
PATHS += ("continue_once", "results_path", "tensorboard_logdir", "log_file")
READERS = ("num_workers", "num_shards", "distributed_world_size")


def import_fairseq() -> None:
    """Import fairseq, or say how to install it, and leave logging as it is:
    fairseq/tasks/text_to_speech.py asks for every library's debug lines at import."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, list(root.handlers), root.manager.disable
    logging.disable(logging.INFO)
    try:
        importlib.import_module("fairseq")
    except Exception as error:
        raise ImportError(f"fairseq cannot be imported ({error}): {HOW}") from error
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        for handler in set(root.handlers).difference(handlers):
            root.removeHandler(handler)


import_fairseq()

from . import data_checks, loader_signals, loading  # noqa: E402 (import fairseq)


def keep_what_was_typed(parse, parser, *arguments, **keywords):
    """Around ``options.parse_args_and_arch``: refuse settings that fairseq misreads.

    No TPU without torch_xla, no path that Hydra would read as another path, and no
    context of another text.
    """
    parsed = parse(parser, *arguments, **keywords)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(args, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False
    for name in PATHS:
        path = str(getattr(args, name, ""))
        if "${" in path or "\\'" in path:
            parser.error(f"{name}={path}; allowed: a path without ${{ and \\'")
    readers = (getattr(args, name, 1) or 1 for name in READERS)
    if getattr(args, "context_window", 0) and max(readers) > 1:
        parser.error(
            "--context-window: the context of a block is the one that its process read "
            f"before; allowed with it: 1 for each of {', '.join(READERS)}"
        )
    return parsed


def train_with_our_loop(call_main, cfg, program, **arguments):
    """Around ``call_main``, to which fairseq-train passes its ``main``."""
    if not _is_fairseqs_main(getattr(program, "__code__", None)):
        return call_main(cfg, program, **arguments)
    # imported late: training is a higher layer; by reference: spawned workers call it
    training = f"{__package__.rpartition('.')[0]}.training"
    main = importlib.import_module(f"{training}.main").main
    return importlib.import_module(f"{training}.workers").call_main(cfg, main)


def _is_fairseqs_main(code: types.CodeType | None) -> bool:
    """Also if the program runs as __main__, by its file or with python -m."""
    return (
        code is not None
        and code.co_name == "main"
        and code.co_filename.endswith("fairseq_cli/train.py")
    )


def warn_of_fairseqs_loop() -> None:
    """Warn under fairseq-hydra-train, whose ``main`` runs before this import."""
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:
        if _is_fairseqs_main(frame.f_code):
            logger.warning(
                "fairseq's own loop trains here: without a lock, a checkpoint on "
                "SIGTERM, or resumption by other numbers of workers. python -m "
                "fairseq_transnormer train takes the same options and has all of it"
            )
            return


def share_config_store(init, repository, delegate):
    """Around ``CachingConfigRepository.__init__``: share the stored configurations.

    Hydra changes only the list of search paths, and returns copies of what it stores.
    """
    from hydra.core.config_store import ConfigStore

    init(repository, None)
    store = ConfigStore.instance()
    repository.delegate = copy.deepcopy(delegate, {id(store): store})


def infer_torchrun_on_cpus(infer, training):
    """Around ``_infer_torch_distributed_launch_init``: workers without GPUs."""
    if torch.cuda.device_count():
        return infer(training)
    training.distributed_init_method = "env://"
    training.distributed_world_size = int(os.environ["WORLD_SIZE"])
    training.distributed_rank = int(os.environ["RANK"])
    training.device_id = 0
    training.distributed_no_spawn = True


def infer_slurm_in_batch_script(infer, training, pipelines_of_a_node):
    """Around ``_infer_slurm_init``: a script of one process uses this node's GPUs."""
    asked_for = {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"} & os.environ.keys()
    if not asked_for and training.distributed_port <= 0:
        return False
    return infer(training, pipelines_of_a_node)


def keep_last_batch(
    batch_by_size, indices: Iterable[int], *arguments, **keywords
) -> Sequence[numpy.ndarray]:
    """Around ``data_utils.batch_by_size``: every index is in a batch.

    fairseq alone validates on 72 of 77 examples, and on none of 7.
    """
    if not isinstance(indices, numpy.ndarray):
        indices = numpy.fromiter(indices, dtype=numpy.int64)
    if not len(indices):
        return []
    batches = batch_by_size(indices, *arguments, **keywords)
    left = indices[sum(map(len, batches)) :]
    return [*batches, left] if len(left) else batches


def check_name_for_shell(build_index, dataset, path: str):
    """Around ``FastaDataset._build_index``: ``cat {path} | ...`` in a shell.

    A checkpoint can name the format of the data and parts of the files' names.
    """
    if shlex.quote(path) != path:
        raise ValueError(
            f"{path!r}: fairseq gives the name of a FASTA file to a shell; allowed: "
            "letters, digits and @ % + = : , . / - _"
        )
    return build_index(dataset, path)


class Patch(NamedTuple):
    """A name of fairseq, torch, numpy or Hydra that is replaced."""

    owner: str  # a module or class; "fairseq.*": all modules of fairseq
    name: str
    what: Any  # takes the original and its arguments; or is set where there is none
    why: str  # what happens without it, and in which file
    until: str  # what would end it
    sets: bool = False


EVERY_MODULE = "fairseq.*"
DISTRIBUTED = "fairseq.distributed.utils"
CHECKPOINTS = "fairseq.checkpoint_utils"
PATCHES = (
    Patch("fairseq.options", "parse_args_and_arch", keep_what_was_typed,
        "options.py:200, `if args.bf16: args.tpu = True`: --bf16 asks for torch_xla; "
        "dataclass/utils.py:386: Hydra takes ${oc.env:HOME} in a path for a variable",
        "fairseq separates the two options, and quotes what it gives to Hydra"),
    Patch("hydra._internal.config_repository.CachingConfigRepository", "__init__",
        share_config_store,
        "hydra/_internal/config_repository.py, `copy.deepcopy(delegate)`: each "
        "composition copies all of fairseq's settings, more than half of its time",
        "Hydra's store copies what is asked for alone"),
    Patch(DISTRIBUTED, "call_main", train_with_our_loop,
        "fairseq_cli/train.py: a signal ends a run unsaved, nothing keeps a second one "
        "out of its folder, and so on: docs/upstream_notes.md",
        "fairseq takes a loop of the user's"),
    Patch(EVERY_MODULE, "eval", evaluate,
        "optim/adam.py:91 and others evaluate settings, also a checkpoint's, as Python",
        "fairseq uses ast.literal_eval", sets=True),
    Patch(DISTRIBUTED, "_infer_torch_distributed_launch_init", infer_torchrun_on_cpus,
        "distributed/utils.py:87: torchrun without GPUs divides by their number",
        "fairseq takes torchrun's LOCAL_RANK"),
    Patch(DISTRIBUTED, "_infer_slurm_init", infer_slurm_in_batch_script,
        "distributed/utils.py:96: a batch script of one process asks Slurm for tasks "
        "that it has not",
        "fairseq looks whether it is a task of srun"),
    Patch("torch.utils.data.dataloader._MultiProcessingDataLoaderIter", "__init__",
        loader_signals.start_loaders,
        "torch/utils/data/_utils/worker.py: processes that load data die of a "
        "signal that their trainer waits for, and the trainer of that",
        "torch's loaders ignore signals of others than their parent"),
    Patch("fairseq.data.data_utils", "batch_by_size", keep_last_batch,
        "data/data_utils.py:285: the last batch of every split is dropped if it is no "
        "multiple of required_batch_size_multiple",
        "fairseq's cython has the last indices in a batch"),
    Patch("fairseq.tasks.fairseq_task.FairseqTask", "filter_indices_by_size",
        data_checks.check_left_out,
        "tasks/fairseq_task.py:155: samples that are too long are skipped, perhaps "
        "all of them, and counted as samples",
        "fairseq reports the share of tokens"),
    Patch("numpy", "compat", types.SimpleNamespace(long=int),
        "data/token_block_dataset.py:125, `dtype=np.compat.long`: numpy 2 has none",
        "fairseq supports numpy 2", sets=True),
    Patch("fairseq.data.fasta_dataset.FastaDataset", "_build_index",
        check_name_for_shell,
        "data/fasta_dataset.py:57: the name of a file is part of a shell's command",
        "fairseq calls grep without a shell"),
    Patch(CHECKPOINTS, "load_checkpoint_to_cpu", loading.check_and_load,
        "checkpoint_utils.py:340, a bare torch.load: a file's code runs, or, with "
        "torch 2.6, fairseq's own objects are refused",
        "fairseq loads with weights_only=True and evaluates no settings"),
    Patch(CHECKPOINTS, "load_model_ensemble_and_task", loading.check_loaded_models,
        "checkpoint_utils.py:419: another dictionary of equal size passes, and a "
        "classification head of other classes is a random one",
        "fairseq's checkpoints name their dictionary"),
    Patch("fairseq.file_utils", "load_archive_file", loading.load_archive,
        "file_utils.py:54: archives are unpacked without a filter, then removed",
        "fairseq unpacks with the filter \"data\" and keeps the archive"),
)  # fmt: skip


@functools.cache
def apply() -> None:
    """Make the changes of the table; a second call changes nothing."""
    allow_fairseq_objects()
    for patch in PATCHES:
        for owner in _owners(patch.owner):
            if patch.sets:
                vars(owner).setdefault(patch.name, patch.what)
            else:
                _wrap(owner, patch.name, patch.what)


def _owners(name: str) -> list[Any]:
    """The module or class of a dotted name, or all imported modules of fairseq.

    A test checks that no other module of fairseq evaluates text.
    """
    if name == EVERY_MODULE:
        found = [m for n, m in sys.modules.items() if n.startswith("fairseq.")]
        return [m for m in found if isinstance(m, types.ModuleType)]
    module, _, last = name.rpartition(".")
    if last.lstrip("_")[:1].isupper():
        return [getattr(importlib.import_module(module), last)]
    return [importlib.import_module(name)]


def _wrap(owner: Any, name: str, around: Callable) -> None:
    """Make ``owner.name(...)`` call ``around(original, ...)``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments, **keywords):
        return around(original, *arguments, **keywords)

    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(wrapped) if is_static else wrapped)

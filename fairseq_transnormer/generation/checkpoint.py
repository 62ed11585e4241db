"""A fairseq checkpoint, its dictionary and its subword units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import MODEL_REGISTRY, FairseqLanguageModel
from omegaconf import OmegaConf, open_dict

from .. import models
from ..checkpoints.files import embedding_rows
from ..checkpoints.identity import check_dictionary, check_dictionary_file
from ..checkpoints.safe_loading import CheckpointError
from ..data.subword_files import (
    DICTIONARY,
    dictionary_folder,
    find_sentencepiece_model,
)
from .errors import GenerationError

# what examples/train_plain_pytorch.py has no settings of: fairseq's defaults
SECTIONS = {"generation": GenerationConfig, "bpe": None, "tokenizer": None}


def load_language_model(
    path: str | Path,
    data: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
) -> GeneratorHubInterface:
    """Load a checkpoint, on the CPU.

    Args:
        path: the checkpoint file.
        data: folder with dict.txt; by default that of the training, or else that of
            the checkpoint.
        sentencepiece_model: by default sentencepiece.bpe.model in the folder of the
            dictionary or of the checkpoint, if there is one.

    Returns:
        what ``from_pretrained`` returns.

    Raises:
        GenerationError: a file is missing or not what it should be.
    """
    path = Path(path)
    state = _read_checkpoint(path)
    cfg = state["cfg"]
    _check_architecture(path, cfg)
    with open_dict(cfg):
        for name in SECTIONS.keys() - cfg.keys():
            section = SECTIONS[name]
            cfg[name] = section and OmegaConf.structured(section)
    try:
        data = dictionary_folder(path, cfg["task"]["data"], data)
    except ValueError as error:
        raise GenerationError(str(error)) from error
    overrides = {"data": str(data)}
    units = _sentencepiece_model(sentencepiece_model, data, path.parent)
    if units is not None:
        overrides |= {"bpe": "sentencepiece", "sentencepiece_model": str(units)}
    overwrite_args_by_name(cfg, overrides)

    try:
        task = tasks.setup_task(cfg.task, from_checkpoint=True)
    # fairseq raises what a file happens to lead to
    except Exception as error:
        raise GenerationError(
            f"{data / DICTIONARY}: {one_line(error)}; allowed: SYMBOL COUNT a line, in "
            "UTF-8, and each symbol once"
        ) from error
    known = embedding_rows(state["model"])
    if known is None:
        raise GenerationError(f"{path}: no embed_tokens.weight in it")
    if len(task.dictionary) != known:
        raise GenerationError(
            f"{data / DICTIONARY}: {len(task.dictionary)} entries; allowed for this "
            f"checkpoint: {known}, the dictionary that it was trained with (--data)"
        )
    try:
        check_dictionary(state, task.dictionary, path)
        check_dictionary_file(data / DICTIONARY)
    except CheckpointError as error:
        raise GenerationError(f"{error} (--data; here: {data})") from error
    loaded, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], task=task, state=state
    )
    try:
        return GeneratorHubInterface(cfg, task, loaded)
    # sentencepiece and tokenizers raise what a file, or its absence, leads to
    except Exception as error:
        named = f"{units}: no sentencepiece model" if units else f"{path}: its units"
        raise GenerationError(f"{named} ({one_line(error)})") from error


def one_line(error: Exception) -> str:
    """What an exception of another program says."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq upgrades it; raises GenerationError if it is none."""
    try:
        # fairseq's loader lies inside fairseq_patches' check
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        state["cfg"]["model"], state["model"]
    except CheckpointError as error:
        raise GenerationError(str(error)) from error
    # fairseq raises what the damage happens to lead to
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise GenerationError(f"{path}: not a fairseq checkpoint ({reason})") from error
    return state


def _check_architecture(path: Path, cfg: Any) -> None:
    name = getattr(cfg["model"], "_name", None) or getattr(cfg["model"], "arch", None)
    ours = {
        each
        for each, model in MODEL_REGISTRY.items()
        if model.__module__.startswith(models.__name__)
        and issubclass(model, FairseqLanguageModel)
    }
    if name not in ours:
        raise GenerationError(
            f"{path}: a checkpoint of {name!r}; allowed are this package's "
            f"language models: {', '.join(sorted(ours))}"
        )


def _sentencepiece_model(given: str | Path | None, *folders: Path) -> Path | None:
    if given is None:
        return find_sentencepiece_model(folders)
    if not Path(given).is_file():
        raise GenerationError(f"{given}: no such sentencepiece model")
    return Path(given)

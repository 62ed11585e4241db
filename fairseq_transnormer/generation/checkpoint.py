"""A fairseq checkpoint, its dictionary and its subword units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import MODEL_REGISTRY, FairseqLanguageModel
from omegaconf import OmegaConf, open_dict

from ..checkpoints.files import embedding_rows
from ..checkpoints.identity import (
    check_dictionary,
    check_dictionary_file,
    check_units,
    saved_units,
)
from ..checkpoints.safe_loading import CheckpointError, error_line
from ..data.subword_files import (
    DICTIONARY,
    SENTENCEPIECE_MODEL,
    dictionary_folder,
    find_subword_files,
    missing_units,
)
from ..plugin import models
from .errors import GenerationError

TASKS = ("language_modeling",)
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
        sentencepiece_model: by default the subword files in the folder of the
            dictionary or of the checkpoint, if there are any: sentencepiece.bpe.model,
            or GPT-2's encoder.json and vocab.bpe.

    Returns:
        what ``from_pretrained`` returns.

    Raises:
        GenerationError: a file is missing or not what it should be.
    """
    architectures = own_models(FairseqLanguageModel)
    return load_with_units(path, data, sentencepiece_model, architectures, TASKS)


def own_models(kind: type) -> set[str]:
    """Architectures of this package whose models are of this kind."""
    return {
        name
        for name, model in MODEL_REGISTRY.items()
        if model.__module__.startswith(models.__name__) and issubclass(model, kind)
    }


def load_with_units(
    path: str | Path,
    data: str | Path | None,
    sentencepiece_model: str | Path | None,
    architectures: set[str],
    task_names: Sequence[str],
) -> GeneratorHubInterface:
    """``load_language_model`` of any of these architectures, trained by these tasks."""
    path = Path(path)
    state = _read_checkpoint(path)
    cfg = state["cfg"]
    _check_architecture(path, cfg, architectures)
    _check_task(path, cfg, task_names)
    with open_dict(cfg):
        for name in SECTIONS.keys() - cfg.keys():
            section = SECTIONS[name]
            cfg[name] = section and OmegaConf.structured(section)
    try:
        data = dictionary_folder(path, cfg["task"]["data"], data)
    except ValueError as error:
        raise GenerationError(str(error)) from error
    units = _subword_files(sentencepiece_model, data, path.parent)
    overwrite_args_by_name(cfg, {"data": str(data), **_settings_of(units)})

    try:
        task = tasks.setup_task(cfg.task, from_checkpoint=True)
    # fairseq raises what a file happens to lead to
    except Exception as error:
        raise GenerationError(
            f"{data / DICTIONARY}: {error_line(error)}; allowed: SYMBOL COUNT a "
            "line, in UTF-8, and each symbol once"
        ) from error
    missing = None if units else missing_units(task.dictionary.symbols)
    if missing is not None:
        named = " (--sentencepiece-model)" if missing == SENTENCEPIECE_MODEL else ""
        raise GenerationError(
            f"{data / DICTIONARY} has subword units, and there is no {missing} in "
            f"{data} or {path.parent}{named}"
        )
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
        check_units(saved_units(state), units, task.dictionary, data, path)
    except CheckpointError as error:
        raise GenerationError(f"{error} (--data; here: {data})") from error
    try:
        loaded, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], task=task, state=state
        )
    except CheckpointError as error:
        raise GenerationError(str(error)) from error
    try:
        return GeneratorHubInterface(cfg, task, loaded)
    # sentencepiece and tokenizers raise what a file, or its absence, leads to
    except Exception as error:
        named = f"{path}: its units"
        if units:
            kind = "sentencepiece model" if len(units) == 1 else "files of GPT-2's BPE"
            named = f"{' and '.join(map(str, units))}: no {kind}"
        raise GenerationError(f"{named} ({error_line(error)})") from error


def _check_task(path: Path, cfg: Mapping[str, Any], names: Sequence[str]) -> None:
    name = cfg["task"]["_name"]
    if name not in names:
        raise GenerationError(
            f"{path}: a checkpoint of the task {name}; allowed: {', '.join(names)}"
        )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq upgrades it; raises GenerationError if it is none."""
    try:
        # fairseq's loader lies inside plugin/loading.py's check
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        state["cfg"]["model"], state["model"]
    except CheckpointError as error:
        raise GenerationError(str(error)) from error
    # fairseq raises what the damage happens to lead to
    except Exception as error:
        raise GenerationError(
            f"{path}: not a fairseq checkpoint ({error_line(error)})"
        ) from error
    return state


def _check_architecture(path: Path, cfg: Any, allowed: set[str]) -> None:
    name = getattr(cfg["model"], "_name", None) or getattr(cfg["model"], "arch", None)
    if name not in allowed:
        raise GenerationError(
            f"{path}: a checkpoint of {name!r}; allowed are these language models: "
            f"{', '.join(sorted(allowed))}"
        )


def _subword_files(given: str | Path | None, *folders: Path) -> tuple[Path, ...]:
    if given is None:
        try:
            return find_subword_files(folders)
        except ValueError as error:
            raise GenerationError(str(error)) from error
    if not Path(given).is_file():
        raise GenerationError(f"{given}: no such sentencepiece model")
    return (Path(given),)


def _settings_of(units: tuple[Path, ...]) -> dict[str, str]:
    """fairseq's settings for subword files."""
    if not units:
        return {}
    if len(units) == 1:
        return {"bpe": "sentencepiece", "sentencepiece_model": str(units[0])}
    encoder, merges = map(str, units)
    return {"bpe": "gpt2", "gpt2_encoder_json": encoder, "gpt2_vocab_bpe": merges}

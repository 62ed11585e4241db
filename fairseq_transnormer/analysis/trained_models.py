"""Checkpoints and text to look at them with.

fairseq is imported where it is needed: the commands' ``--help`` does without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoints.safe_loading import CheckpointError, error_line, read_checkpoint


def load_trained_model(path: Path, data: Path) -> nn.Module:
    """The fairseq model of a checkpoint, on the CPU, in float32, in evaluation mode.

    Args:
        path: the checkpoint file; of any architecture.
        data: folder with the dict.txt of its training.

    Raises:
        ValueError: there is no such file, or it is no checkpoint of a language model
            with this dictionary.
    """
    from .. import plugin  # noqa: F401 (registers the models)

    # isort: split
    from fairseq import checkpoint_utils

    try:
        # fairseq's loader lies inside plugin/loading.py's check
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {"data": str(data)})
        models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], state=state
        )
    except CheckpointError:
        raise
    # fairseq raises what the mismatch happens to lead to
    except Exception as error:
        raise ValueError(
            f"{path}: cannot be loaded with the dictionary of {data} "
            f"({error_line(error)})"
        ) from error
    return models[0].float().eval()


def trained_mask_share(paths: Iterable[Path]) -> float | None:
    """The share of tokens that the masked models among checkpoints learnt to tell,
    ``task.mask_prob``; None where there is no masked model.

    Raises:
        ValueError: they learnt with different shares, or a file is no checkpoint.
    """
    shares = {}
    for path in paths:
        settings = read_checkpoint(path, mmap=True, compare_sums=False).get("cfg")
        task = settings.get("task") if isinstance(settings, Mapping) else None
        share = task.get("mask_prob") if isinstance(task, Mapping) else None
        if share is not None:
            shares[path] = float(share)
    if len(set(shares.values())) > 1:
        each = ", ".join(f"{path}: {share}" for path, share in shares.items())
        raise ValueError(
            f"trained with different shares of masked tokens ({each}); set --mask-share"
        )
    return next(iter(shares.values()), None)


def read_blocks(data: Path, split: str, count: int, length: int) -> Tensor:
    """The first ``count`` consecutive blocks of ``length`` tokens of a binarised split.

    Returns:
        int64 (count, length).

    Raises:
        ValueError: there is no such split, or it has fewer tokens.
    """
    from .. import plugin  # noqa: F401 (imports fairseq first)

    # isort: split
    from fairseq.data import Dictionary, data_utils

    dictionary = data / "dict.txt"
    if not dictionary.is_file():
        raise ValueError(f"{data}: no dict.txt; allowed: folders of binarised text")
    try:
        words = Dictionary.load(str(dictionary))
    # fairseq raises what the file happens to lead to
    except Exception as error:
        raise ValueError(
            f"{dictionary}: no dictionary ({error_line(error)})"
        ) from error
    dataset = data_utils.load_indexed_dataset(str(data / split), words)
    if dataset is None:
        raise ValueError(f"{data}: no split {split!r}")
    lines, tokens = [], 0
    for line in dataset:
        lines.append(line)
        tokens += len(line)
        if tokens >= count * length:
            return torch.cat(lines)[: count * length].long().view(count, length)
    raise ValueError(
        f"{data}: split {split!r} has {tokens} tokens; allowed: {count} * {length} "
        "tokens at least"
    )


def run_on(model: nn.Module, tokens: Tensor) -> None:
    """Run a model on tokens (B, N), as in training but for masked words.

    Raises:
        ValueError: the model has no positions for so many.
    """
    check_length(model, tokens.shape[1])
    if not hasattr(model, "decoder"):
        tokens = after_begin(model, tokens)
    model(tokens, features_only=True)


def check_length(model: nn.Module, length: int) -> None:
    """Raise ValueError where fairseq's learned positions are fewer than ``length``:
    torch's own error would tell neither number."""
    from fairseq.modules import LearnedPositionalEmbedding

    for module in model.modules():
        if isinstance(module, LearnedPositionalEmbedding):
            if length > module.max_positions:
                raise ValueError(
                    f"length {length}; allowed: up to {module.max_positions}, for "
                    "which the model has learned positions"
                )


def after_begin(model: nn.Module, tokens: Tensor) -> Tensor:
    """(B, N) tokens for a masked model: ``<s>``, as fairseq's data have it, and all but
    the last."""
    begin = torch.full_like(tokens[:, :1], model.encoder.dictionary.bos())
    return torch.cat([begin, tokens[:, :-1]], 1)

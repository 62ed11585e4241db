"""Read checkpoints without running their code; all of this package uses this module.

A checkpoint is a pickle, and a pickle can call any function. torch's safe loading
(``weights_only=True``) allows only tensors, plain containers and listed classes.
fairseq's commands load in the same way: ``plugin/loading.py`` calls ``read_checkpoint``
before fairseq's loader, and ``check_settings`` after it. Damaged files are found, too.
docs/inference.md describes the limits.
"""

from __future__ import annotations

import argparse
import ast
import collections
import os
import pickle
import re
import sys
import typing
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from .added_fields import fill_in
from .fairseq_vanilla import convert

# settings that fairseq never evaluates: names of files, which may have brackets
NAMES_OF_FILES = ("data", "dir", "file", "path", "project", "_model", "prefix", "repo")
# values and arithmetic, which call no function of a configuration's choice; calls,
# comprehensions, subscripts, lambdas, assignments and f-strings may
HARMLESS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.expr_context),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.unaryop, ast.operator, ast.boolop, ast.cmpop),
)
# types of a configuration; omegaconf's DictConfig is a mapping, its ListConfig is not
KINDS: dict[str, Any] = {"cfg": Mapping, "args": (argparse.Namespace, Mapping)}


class CheckpointError(ValueError):
    """A file cannot be loaded as a checkpoint; the message says why."""


def error_line(error: Exception) -> str:
    """The message of a library's error, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def read_checkpoint(
    path: str | Path,
    *,
    mmap: bool = False,
    compare_sums: bool = True,
    as_saved: bool = False,
) -> dict[str, Any]:
    """Read a checkpoint to the CPU, in the form in which this version saves.

    Unless ``as_saved``, later fields are added to its configuration (``added_fields``),
    and vanilla's weights get our names (``fairseq_vanilla``).

    Args:
        path: the file.
        mmap: leave the tensors on the disk until they are used.
        compare_sums: read the whole file once and compare the CRC-32 of each record.
            torch does not: a flipped bit would become a weight. Files from before torch
            1.6 have none. The sums of a refused file are compared anyway.

    Raises:
        CheckpointError: there is no such file; it is damaged, or has no "model"; it
            has objects that fairseq's checkpoints do not have, or settings that are not
            plain values. None of its code has run.
    """
    path = Path(path)
    if path.is_dir():
        files = ", ".join(sorted(each.name for each in path.glob("*.pt"))) or "none"
        raise CheckpointError(f"{path}: a folder; give a checkpoint in it: {files}")
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint file")
    allow_fairseq_objects()
    has_sums = zipfile.is_zipfile(path)
    try:
        state = _read(path, mmap and has_sums)
    except CheckpointError as error:
        # damage can look like anything, also like code or other settings
        _refuse_damage(path, has_sums, error)
        raise
    if compare_sums:
        _refuse_damage(path, has_sums)
    if as_saved:
        return state
    settings = state.get("cfg")
    if isinstance(settings, Mapping) and isinstance(settings.get("model"), dict):
        fill_in(settings["model"])
        try:
            convert(state)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
    return state


def _read(path: Path, mmap: bool) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    # damage can make torch.load raise any error
    except Exception as error:
        raise CheckpointError(f"{path}: {_reason(error)}") from error
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{path}: not a fairseq checkpoint (a {type(state).__name__})"
        )
    check_settings(path, state)
    if "model" not in state:
        found = ", ".join(map(repr, list(state)[:5])) or "nothing"
        raise CheckpointError(
            f"{path}: not a fairseq checkpoint (no 'model' in it, only {found}); "
            "allowed: one that fairseq-train has saved"
        )
    weights = state["model"]
    if not isinstance(weights, Mapping):
        raise CheckpointError(f"{path}: 'model' is not a mapping of names to tensors")
    for name, tensor in weights.items():
        is_dense = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
        if not (isinstance(name, str) and is_dense) or tensor.is_complex():
            raise CheckpointError(
                f"{path}: model[{name!r}] is not a dense tensor of real numbers"
            )
    return state


def _refuse_damage(
    path: Path, has_sums: bool, error: CheckpointError | None = None
) -> None:
    if has_sums and not is_whole(path):
        raise CheckpointError(
            f"{path}: damaged: a record differs from what was written (CRC-32)"
        ) from error


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is undamaged, by its records' CRC-32.

    ``torch.load`` does not compare them: a flipped bit would become a weight. It is
    stricter about headers than Python's zipfile, so its reader is used, too.
    """
    try:
        torch._C.PyTorchFileReader(os.fspath(path))
        with zipfile.ZipFile(path) as archive:
            records = archive.namelist()
            has_pickle = any(name.endswith("/data.pkl") for name in records)
            return has_pickle and archive.testzip() is None
    except PermissionError:
        raise
    except Exception:  # a damaged header makes zipfile raise almost anything
        return False


def allow_fairseq_objects() -> None:
    """Allow torch to load the classes in fairseq's checkpoints.

    None of them has an effect when it is created. torch's list is global.
    """
    torch.serialization.add_safe_globals(
        [*_OWN_OBJECTS, *_numpy_numbers(), *_configuration_objects()]
    )


# models and optimizers that fairseq configures by argparse keep their Namespace
_OWN_OBJECTS = (argparse.Namespace, collections.OrderedDict, collections.defaultdict)


def _numpy_numbers() -> list[Any]:
    """Types of best scores from numpy or scipy: correlations of sentence_prediction."""
    core = getattr(numpy, "_core", None) or numpy.core
    kinds = {type(numpy.dtype(name)) for name in ("float32", "float64", "int64")}
    return [core.multiarray.scalar, numpy.dtype, *kinds]


def _configuration_objects() -> list[Any]:
    """DictConfig, which the first worker sends to the others when they resume.

    Files have plain dicts instead, except those of fairseq before 1.0.
    """
    try:
        from omegaconf import DictConfig, ListConfig, base, nodes
    except ImportError:
        return []
    # without fairseq there are no other workers
    sending = sys.modules.get("fairseq.distributed.utils")
    return [
        DictConfig,
        ListConfig,
        base.ContainerMetadata,
        base.Metadata,
        nodes.AnyNode,
        nodes.BooleanNode,
        nodes.FloatNode,
        nodes.IntegerNode,
        nodes.StringNode,
        typing.Any,
        dict,
        list,
        int,
        set,
        slice,
        *([sending._TensorPlaceholder] if sending else []),
    ]


def _reason(error: Exception) -> str:
    # the text before this explains how to load the file unsafely
    text = str(error).rpartition("WeightsUnpickler error: ")[2].strip()
    found = re.search(r"GLOBAL (\w[\w.]*)", text)
    if isinstance(error, pickle.UnpicklingError) and found:
        return (
            f"refused, since it asks for {found[1]}; allowed: tensors, plain "
            "containers and the objects of fairseq's configuration. No code of the "
            "file has run"
        )
    detail = re.split(r"\n|\. ", text)[0] or type(error).__name__
    return f"not a fairseq checkpoint, or damaged ({detail[:200]})"


def check_settings(
    path: str | Path, state: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> None:
    """Refuse a configuration that has more than plain values.

    fairseq evaluates some settings, such as ``conv_feature_layers``, as Python. It
    reads a configuration that is a single text as YAML.

    Args:
        path: of the checkpoint, for the message.
        state: a checkpoint as saved, or as fairseq's loader returns it.
        own: the user's settings that replace the checkpoint's, by name.

    Raises:
        CheckpointError: a setting is not plain; the message has its name and value.
    """
    for kind, allowed in KINDS.items():
        value = state.get(kind)
        if not (value is None or isinstance(value, allowed)):
            raise CheckpointError(
                f"{path}: refused, since {kind}={repr(value)[:80]} is not a "
                f"configuration but a {type(value).__name__}; allowed: a dict of plain "
                "values, or None. No code of the file has run"
            )
        try:
            found = list(_settings(value, kind))
        except RecursionError as error:
            raise CheckpointError(f"{path}: {_reason(error)}") from error
        for name, value in found:
            if not (_is_plain(name, value) or _is_own(name, value, own or {})):
                raise CheckpointError(
                    f"{path}: refused, since {name}={repr(value)[:80]} is not a plain "
                    "value and fairseq may evaluate it; allowed: numbers, None, and "
                    "texts without ${...} that, as Python, are only values and "
                    "arithmetic. No code of the file has run"
                )


def _is_own(name: str, value: Any, own: Mapping[str, Any]) -> bool:
    """Whether this is the user's setting; fairseq may have turned it into a text."""
    key = name.rpartition(".")[2]
    return key in own and (value is own[key] or str(value) == str(own[key]))


def _settings(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All values in a configuration that are not containers, with dotted names."""
    is_omegaconfs = type(value).__module__.startswith("omegaconf.")
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _settings(key, name)
            yield from _settings(inside, f"{name}.{key}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inside in value:
            yield from _settings(inside, name)
    elif not (is_omegaconfs or isinstance(value, argparse.Namespace)):
        yield name, value
        return
    # an OrderedDict can have them, too, and fairseq reads settings as attributes
    for key, inside in getattr(value, "__dict__", {}).items():
        if is_omegaconfs and key in ("_content", "_val"):
            yield from _settings(inside, name)
        elif not (is_omegaconfs and key in ("_metadata", "_parent", "_flags_cache")):
            yield from _settings(inside, f"{name}.{key}")


def _is_plain(name: str, value: Any) -> bool:
    # eval also takes bytes, and numbers of numpy by their bytes
    if type(value) is not str:
        return type(value) in (bool, int, float, type(None))
    # fairseq saves resolved interpolations
    return "${" not in value and (name.endswith(NAMES_OF_FILES) or _is_harmless(value))


def _is_harmless(text: str) -> bool:
    """Whether ``eval(text)`` fails, or only makes values and reads attributes."""
    try:
        # eval ignores these two as well
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
    except (SyntaxError, ValueError):
        return True
    # too deep for ast; eval may get further
    except (RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, HARMLESS):
            return False
        # such as x.y, the name of a file
        if isinstance(node, ast.Attribute) and not isinstance(
            node.value, (ast.Name, ast.Attribute)
        ):
            return False
        # fairseq/dataclass/utils.py, _override_attr, replaces a quoted text by its
        # content, and evaluates wer_args afterwards
        if isinstance(node, ast.Constant) and (
            isinstance(node.value, bytes)
            or (isinstance(node.value, str) and not _is_plain("", node.value))
        ):
            return False
    return True

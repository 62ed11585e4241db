"""Reads checkpoints without running code that is in them: the one way that all use.

A checkpoint is a pickle, and a pickle can call any function. torch's safe loading
(``weights_only=True``) lets through tensors, plain containers and what it is told of.
fairseq's own commands load the same way: ``plugin/loading.py`` has ``read_checkpoint``
in front of fairseq's loader, and ``check_settings`` after it. A damaged file is seen
here, too. docs/inference.md says what this does not reach.
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

# what fairseq never evaluates: names of files, where text in brackets is no call
NAMES_OF_FILES = ("data", "dir", "file", "path", "project", "_model", "prefix", "repo")
# values and arithmetic: what calls nothing of a configuration's choosing, as calls,
# comprehensions, subscripts, lambdas, assignments and f-strings may
HARMLESS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.expr_context),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.unaryop, ast.operator, ast.boolop, ast.cmpop),
)
# a configuration; omegaconf's DictConfig is a mapping, and its ListConfig is not
KINDS: dict[str, Any] = {"cfg": Mapping, "args": (argparse.Namespace, Mapping)}


class CheckpointError(ValueError):
    """A file is no checkpoint that can be loaded; the message says why."""


def error_line(error: Exception) -> str:
    """What fairseq, or another library, says of a file, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def read_checkpoint(
    path: str | Path,
    *,
    mmap: bool = False,
    compare_sums: bool = True,
    as_saved: bool = False,
) -> dict[str, Any]:
    """What is in a checkpoint, on the CPU, as this version would have saved it.

    Its configuration has the fields that came later, too (``added_fields``), and
    vanilla's weights have our names (``fairseq_vanilla``); unless ``as_saved``.

    Args:
        path: the file.
        mmap: leave the tensors on the disk until they are used.
        compare_sums: read the whole file once and compare the CRC-32 of each record,
            which torch does not: a flipped bit would become a weight. Files of before
            torch 1.6 have none. Those of a file that is refused are compared anyway.

    Raises:
        CheckpointError: there is no such file; it is damaged, or has no "model"; it
            holds objects other than those of fairseq's checkpoints, or settings that
            are no plain values. Nothing of it has been run.
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
        # damage can look like anything, an object to run and other settings, too
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
    # torch.load raises what the damage happens to lead to
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
        raise CheckpointError(f"{path}: 'model' is no mapping of names to tensors")
    for name, tensor in weights.items():
        is_dense = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
        if not (isinstance(name, str) and is_dense) or tensor.is_complex():
            raise CheckpointError(
                f"{path}: model[{name!r}] is no dense tensor of real numbers"
            )
    return state


def _refuse_damage(
    path: Path, has_sums: bool, error: CheckpointError | None = None
) -> None:
    if has_sums and not is_whole(path):
        raise CheckpointError(
            f"{path}: damaged: a record is not what was written (CRC-32)"
        ) from error


def is_whole(path: Path) -> bool:
    """Whether all of a checkpoint is as it was written, by its records' CRC-32.

    ``torch.load`` does not look at them: a flipped bit would become a weight. It is
    stricter about headers than Python's zipfile, so its reader is asked, too.
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
    """Name to torch the objects that fairseq's checkpoints hold besides tensors.

    None of them does anything when it is made. torch's list counts for the process.
    """
    torch.serialization.add_safe_globals(
        [*_OWN_OBJECTS, *_numpy_numbers(), *_configuration_objects()]
    )


# models and optimizers that fairseq configures by argparse keep their Namespace
_OWN_OBJECTS = (argparse.Namespace, collections.OrderedDict, collections.defaultdict)


def _numpy_numbers() -> list[Any]:
    """Best scores that numpy or scipy computed: correlations of sentence_prediction."""
    core = getattr(numpy, "_core", None) or numpy.core
    kinds = {type(numpy.dtype(name)) for name in ("float32", "float64", "int64")}
    return [core.multiarray.scalar, numpy.dtype, *kinds]


def _configuration_objects() -> list[Any]:
    """What one worker sends to the others when several resume: a DictConfig.

    Files have plain dicts in its place, but for those of fairseq before 1.0.
    """
    try:
        from omegaconf import DictConfig, ListConfig, base, nodes
    except ImportError:
        return []
    # without fairseq no other worker sends anything
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
    # what torch says in front of this is how to load the file unsafely
    text = str(error).rpartition("WeightsUnpickler error: ")[2].strip()
    found = re.search(r"GLOBAL (\w[\w.]*)", text)
    if isinstance(error, pickle.UnpicklingError) and found:
        return (
            f"refused, since it asks for {found[1]}; allowed: tensors, plain "
            "containers and the objects of fairseq's configuration. Nothing in the "
            "file has been run"
        )
    detail = re.split(r"\n|\. ", text)[0] or type(error).__name__
    return f"not a fairseq checkpoint, or damaged ({detail[:200]})"


def check_settings(
    path: str | Path, state: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> None:
    """Refuse a configuration that holds more than plain values.

    fairseq evaluates some settings, such as ``conv_feature_layers``, as Python, and
    reads a configuration that is one text as YAML.

    Args:
        path: of the checkpoint, for the message.
        state: a checkpoint as it was saved, or as fairseq's loader returns it.
        own: settings that the user gave in the place of the checkpoint's, by name.

    Raises:
        CheckpointError: there is such a setting; it and its value are named.
    """
    for kind, allowed in KINDS.items():
        value = state.get(kind)
        if not (value is None or isinstance(value, allowed)):
            raise CheckpointError(
                f"{path}: refused, since {kind}={repr(value)[:80]} is no configuration "
                f"but a {type(value).__name__}; allowed: a dict of plain values, or "
                "None. Nothing in the file has been run"
            )
        try:
            found = list(_settings(value, kind))
        except RecursionError as error:
            raise CheckpointError(f"{path}: {_reason(error)}") from error
        for name, value in found:
            if not (_is_plain(name, value) or _is_own(name, value, own or {})):
                raise CheckpointError(
                    f"{path}: refused, since {name}={repr(value)[:80]} is no plain "
                    "value and fairseq may evaluate it; allowed: numbers, None, and "
                    "texts without ${...} that, as Python, are but values and "
                    "arithmetic. Nothing in the file has been run"
                )


def _is_own(name: str, value: Any, own: Mapping[str, Any]) -> bool:
    """Whether this is the user's setting; fairseq may have made a text of it."""
    key = name.rpartition(".")[2]
    return key in own and (value is own[key] or str(value) == str(own[key]))


def _settings(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All in a configuration that is no container, with its dotted name."""
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
    # eval takes bytes, too, and by their bytes the numbers of numpy
    if type(value) is not str:
        return type(value) in (bool, int, float, type(None))
    # fairseq saves what interpolations resolve to
    return "${" not in value and (name.endswith(NAMES_OF_FILES) or _is_harmless(value))


def _is_harmless(text: str) -> bool:
    """Whether ``eval(text)`` fails, or can but make values and read attributes."""
    try:
        # eval, too, passes over these two
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
        # fairseq/dataclass/utils.py, _override_attr, puts the text that a quoted one
        # stands for in its place, and wer_args is evaluated after that
        if isinstance(node, ast.Constant) and (
            isinstance(node.value, bytes)
            or (isinstance(node.value, str) and not _is_plain("", node.value))
        ):
            return False
    return True

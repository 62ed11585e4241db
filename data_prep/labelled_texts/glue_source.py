"""A GLUE task from wherever it is: the hub, the original files, or a saved copy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.folders.dataset_files import (
    fingerprints,
    load_from_hub,
    load_saved,
    readable,
    shards,
)
from data_prep.folders.errors import InputError
from data_prep.folders.hub_data import HubData
from data_prep.labelled_texts.glue_originals import (
    original_files,
    read_original,
    require_label,
)
from data_prep.labelled_texts.glue_tasks import GlueTask
from data_prep.labelled_texts.labelled_examples import (
    Example,
    LabelledSplit,
    Malformed,
)
from fairseq_transnormer.data.texts import one_line_text

HUB_DATA = HubData("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
ROWS_AT_ONCE = 1000
HIDDEN_LABEL = -1

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Source:
    """The splits of a task, and what identifies it for the settings."""

    identity: dict[str, Any]
    read: Callable[[str], LabelledSplit]


def local_source(folder: Path, task: GlueTask, alone: bool) -> Source:
    """The copy in ``folder``, in any of the forms that ``layouts`` describes.

    ``alone``: no other task is wanted, so that ``folder`` itself may be the task's.
    """
    if not folder.is_dir():
        raise InputError(f"--from-dir {folder}: no such folder")
    places = [folder / task.name, folder / task.config]
    for place in [*places, folder] if alone else places:
        if (place / "dataset_dict.json").exists():
            return _saved_dataset(place, task)
        if any(place.glob("*.parquet")):
            return _parquet_files(place, task)
        files = original_files(place, task)
        if files:
            return _original_files(place, files, task)
    raise InputError(
        f"--from-dir {folder}: holds no copy of {task.name}; {layouts(task)}"
    )


def layouts(task: GlueTask) -> str:
    """The accepted forms of a local copy, as one sentence."""
    hub_names = ", ".join(f"{name}-*.parquet" for name, _ in task.splits.values())
    names = ", ".join(f"{name}.tsv" for _, name in task.splits.values())
    return (
        f"accepted are, in its subfolder {task.name} or {task.config}, the original "
        f"files ({names}), a dataset saved with save_to_disk (dataset_dict.json), or "
        f"the hub's parquet files ({hub_names})"
    )


def hub_source(task: GlueTask) -> Source:
    """The task from the Hugging Face hub, through its cache."""
    loaded = load_from_hub(HUB_DATA, task.config, layouts=layouts(task))
    return Source(
        HUB_DATA.identity(task.config),
        lambda split: _of_dataset(loaded, HUB_DATA.name, task, split),
    )


def _original_files(folder: Path, files: dict[str, Path], task: GlueTask) -> Source:
    identity = fingerprints(folder, list(files.values()))
    return Source(identity, lambda split: read_original(files, task, split))


def _saved_dataset(folder: Path, task: GlueTask) -> Source:
    loaded, identity = load_saved(folder, [name for name, _ in task.splits.values()])
    return Source(identity, lambda split: _of_dataset(loaded, folder, task, split))


def _of_dataset(
    loaded: Any, where: Path | str, task: GlueTask, split: str
) -> LabelledSplit:
    rows = loaded[task.splits[split][0]]
    name = f"{where}/{task.splits[split][0]}"
    batches = rows.iter(batch_size=ROWS_AT_ONCE)
    return _examples(name, rows.features, batches, task, split)


def _parquet_files(folder: Path, task: GlueTask) -> Source:
    files = {split: shards(folder, name) for split, (name, _) in task.splits.items()}

    def read(split: str) -> LabelledSplit:
        import datasets
        from pyarrow import parquet

        where = f"{folder}/{task.splits[split][0]}"
        with readable(where):
            schema = parquet.read_schema(files[split][0])
            features = datasets.Features.from_arrow_schema(schema)
        return _examples(where, features, _parquet_rows(files[split]), task, split)

    paths = [path for shard_paths in files.values() for path in shard_paths]
    return Source(fingerprints(folder, paths), read)


def _parquet_rows(files: list[Path]) -> Iterator[Columns]:
    """Read in place: ``datasets`` would first copy the files into its cache."""
    from pyarrow import parquet

    for path in files:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield batch.to_pydict()


def _examples(
    where: str, features: Any, batches: Iterator[Columns], task: GlueTask, split: str
) -> LabelledSplit:
    columns = [column[0] for column in (task.text, task.pair, task.label) if column]
    for column in columns:
        if column not in features:
            raise InputError(
                f"{where}: no column {column!r}; its columns are {', '.join(features)}"
            )
    _require_order(where, features[task.label[0]], task)
    malformed = Malformed(where, allowed=True)
    examples: list[Example] = []
    place = 0
    with readable(where):
        for batch in batches:
            indices = batch.get("idx") or range(place, place + len(batch[columns[0]]))
            for index, *fields in zip(
                indices, *(batch[column] for column in columns), strict=True
            ):
                place += 1
                example = _example(where, place, index, fields, task)
                empty = not example.text or example.pair == ""
                # every example of a test split needs a prediction
                if empty and not split.startswith("test"):
                    malformed.skip(place, "an empty text")
                elif example.label is None and not split.startswith("test"):
                    malformed.skip(place, f"the label {HIDDEN_LABEL}")
                else:
                    examples.append(example)
    malformed.finish(place)
    return LabelledSplit(examples, malformed)


def _example(
    where: str, place: int, index: int, fields: list[Any], task: GlueTask
) -> Example:
    *texts, label = fields
    texts = [one_line_text(text or "") for text in texts]
    if label is None or label == HIDDEN_LABEL:
        label = None
    else:
        if isinstance(label, int) and task.labels and 0 <= label < len(task.labels):
            label = task.labels[label]
        # float32 of 3.8 is no 3.8
        label = f"{label:.6g}" if isinstance(label, float) else str(label)
        require_label(f"{where}, row {place}: column {task.label[0]!r}", label, task)
    pair = texts[1] if task.pair else None
    return Example(str(index), texts[0], pair, label, place)


def _require_order(where: str, feature: Any, task: GlueTask) -> None:
    """A copy that numbers its classes otherwise must not be taken for the hub's."""
    names = getattr(feature, "names", None)
    if names is None or task.labels is None:
        return
    if tuple(names) not in (task.labels, task.hub_labels):
        allowed = ", ".join(task.hub_labels or task.labels)
        raise InputError(
            f"{where}: column {task.label[0]!r}: the classes are {', '.join(names)}; "
            f"allowed are, in this order, {allowed}"
        )

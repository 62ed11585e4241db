"""The tab-separated files that GLUE was first published as, quirks included.

No field is quoted, so that a quotation mark is a character like any other. CoLA's
labelled files have no header. Lines of QQP are broken by tabs and line breaks in
questions: they have too many columns or too few and are left out. MRPC comes as files
of Microsoft's with the ids of the dev examples apart.
"""

from collections.abc import Iterator
from pathlib import Path

from fairseq_transnormer.data.texts import one_line_text

from .glue_tasks import GlueTask
from .labelled_examples import Example, LabelledSplit

COLA_HEADER = ["source", "label", "mark", "sentence"]
MSR_FILES = {"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"}
MSR_DEV_IDS = "dev_ids.tsv"
INDEX_COLUMNS = ("index", "id")
NO_GOLD_LABEL = "-"  # MNLI's, where the annotators did not agree

# line number and fields by column
Row = tuple[int, dict[str, str]]


def original_files(folder: Path, task: GlueTask) -> dict[str, Path] | None:
    """The file of each split; None if ``folder`` has not one of them.

    Raises ValueError where only some are there.
    """
    files = {split: folder / f"{name}.tsv" for split, (_, name) in task.splits.items()}
    if task.name == "MRPC" and not files["train"].exists():
        msr = {split: folder / name for split, name in MSR_FILES.items()}
        files |= {**msr, "valid": folder / MSR_DEV_IDS}
    if not any(path.exists() for path in files.values()):
        return None
    for path in files.values():
        if not path.is_file():
            raise ValueError(f"{path}: no such file; it belongs to {task.name}")
    return files


def read_original(files: dict[str, Path], task: GlueTask, name: str) -> LabelledSplit:
    """A split's examples. Malformed lines are counted, a wrong label is an error, and
    so is a malformed line of a test split, which needs a prediction of each example."""
    path, dev, needed = files[name], None, name.startswith("test")
    if files["train"].name == MSR_FILES["train"] and not needed:
        # Microsoft's training file without the dev examples, or these alone
        path = files["train"]
        ids = LabelledSplit(f"{task.name}/{MSR_DEV_IDS}", strict=True)
        rows = _rows(files["valid"], ids, ["#1", "#2"])
        dev = {tuple(row.values()) for _, row in rows}
    header = COLA_HEADER if task.name == "CoLA" and not needed else None
    split = LabelledSplit(f"{task.name}/{path.name}", strict=needed)
    columns = [column[1] for column in (task.text, task.pair) if column]
    place = 0
    for line, row in _rows(path, split, header):
        if dev is not None:
            is_dev = (row.get("#1 ID"), row.get("#2 ID")) in dev
            if is_dev != (name == "valid"):
                continue
        for column in columns if needed else [*columns, task.label]:
            if column not in row:
                raise ValueError(
                    f"{path}: no column {column!r}; its columns are {', '.join(row)}"
                )
        texts = [one_line_text(row[column]) for column in columns]
        label = row.get(task.label)
        label = None if label == NO_GOLD_LABEL else label
        if not all(texts) and not needed:
            split.skip(line, f"an empty {columns[texts.index('')]!r}")
        elif label is None and not needed:
            split.skip(line, f"the label {NO_GOLD_LABEL!r}")
        else:
            if label is not None:
                where = f"{path}, line {line}: column {task.label!r}"
                require_label(where, label, task)
            index = next((row[x] for x in INDEX_COLUMNS if x in row), str(place))
            pair = texts[1] if task.pair else None
            split.examples.append(Example(index, texts[0], pair, label, line))
        place += 1
    return split


def _rows(path: Path, split: LabelledSplit, header: list[str] | None) -> Iterator[Row]:
    lines = 0
    # a lone carriage return is part of a question, not the end of a line
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip("\r\n").split("\t")
            if header is None:
                header = fields
                continue
            lines += 1
            if len(fields) == len(header):
                yield number, dict(zip(header, fields, strict=True))
            else:
                reason = f"{len(fields)} columns instead of {len(header)}"
                split.skip(number, reason)
    split.finish(lines)


def require_label(where: str, label: str, task: GlueTask) -> None:
    """Raise ValueError, which begins with ``where``, unless it is the task's."""
    if task.labels is None:
        allowed = f"numbers from 0 to {task.target_scale:g}"
        good = label.replace(".", "", 1).isdecimal() and (
            float(label) <= task.target_scale
        )
    else:
        allowed, good = ", ".join(task.labels), label in task.labels
    if not good:
        raise ValueError(f"{where}: label {label!r}; allowed are {allowed}")

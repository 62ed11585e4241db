"""Cut-down copies of GLUE as it is published, quirks included."""

import json
from pathlib import Path

from data_prep.labelled_texts.glue import TASKS

MNLI_TRAIN = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label"
).split()
MNLI_DEV = [*MNLI_TRAIN[:11], "label2", "label3", "label4", "label5", "gold_label"]
QUOTED = 'Who said "we shall never?'
STS_HEADER = "index genre filename year old_index source1 source2 sentence1 sentence2"
MSR_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]


def write_tsv(path: Path, *rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def _mnli(folder: Path) -> None:
    def row(index, label, header, kind="train"):
        fixed = [index, f"{index}p", f"{index}e", "fiction", "( ( a ) )", "( b )"]
        fixed += ["(ROOT a)", "(ROOT b)", f"premise {index} {kind}", f"then {index} so"]
        return fixed + [label] * (len(header) - len(fixed))

    labels = ["neutral", "entailment", "contradiction", "neutral"]
    rows = [row(i, label, MNLI_TRAIN) for i, label in enumerate(labels)]
    write_tsv(folder / "train.tsv", MNLI_TRAIN, *rows)
    for kind in ("matched", "mismatched"):
        every = enumerate([*labels, "-"])
        rows = [row(i, label, MNLI_DEV, kind) for i, label in every]
        write_tsv(folder / f"dev_{kind}.tsv", MNLI_DEV, *rows)
        rows = [row(i, "", MNLI_DEV[:10], kind) for i in range(2)]
        write_tsv(folder / f"test_{kind}.tsv", MNLI_DEV[:10], *rows)


def _qnli(folder: Path) -> None:
    header = ["index", "question", "sentence", "label"]
    rows = [
        [0, QUOTED, 'The "answer is here.', "entailment"],
        [1, "When was it?", "It was not said.", "not_entailment"],
    ]
    write_tsv(folder / "train.tsv", header, *rows)
    write_tsv(folder / "dev.tsv", header, *rows[::-1])
    write_tsv(folder / "test.tsv", header[:3], *[row[:3] for row in rows])


def _qqp(folder: Path) -> None:
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    rows = [
        [10, 1, 2, "How is it?", "How is that?", 1],
        [11, 3, 4, "A question that a line break"],
        ["cuts in two?", "What now?", 0],
        [12, 5, 6, "A tab\tin it?", "Is it?", 0],
        [13, 7, 8, "What is empty?", "", 0],
        [14, 9, 10, "Why?", "Who?", 0],
    ]
    write_tsv(folder / "train.tsv", header, *rows)
    write_tsv(folder / "dev.tsv", header, rows[0], rows[-1])
    test = [[0, "First?", "Second?"], [1, "Only this?", ""]]
    write_tsv(folder / "test.tsv", ["id", "question1", "question2"], *test)


def _sst2(folder: Path) -> None:
    rows = [["good film ", 1], ["bad film ", 0], ["fine ", 1]]
    write_tsv(folder / "train.tsv", ["sentence", "label"], *rows)
    write_tsv(folder / "dev.tsv", ["sentence", "label"], *rows[:2])
    write_tsv(folder / "test.tsv", ["index", "sentence"], [0, "some film "])


def _cola(folder: Path) -> None:
    good, bad = ["gj04", 1, "", "They ate."], ["gj04", 0, "*", "They ate it it."]
    write_tsv(folder / "train.tsv", good, bad, ["bc01", 1, "", "She slept."])
    write_tsv(folder / "dev.tsv", bad, good)
    write_tsv(folder / "test.tsv", ["index", "sentence"], [0, "Who slept?"])


def _rte(folder: Path) -> None:
    rows = [[0, "It rains.", "It is wet.", "entailment"]]
    rows += [[1, "It rains.", "It is dry.", "not_entailment"]]
    header = ["index", *("sentence1", "sentence2"), "label"]
    write_tsv(folder / "train.tsv", header, *rows)
    write_tsv(folder / "dev.tsv", header, *rows)
    write_tsv(folder / "test.tsv", header[:3], rows[0][:3])


def _stsb(folder: Path) -> None:
    header = [*STS_HEADER.split(), "score"]
    common = ["main", "file", 2012, 7, "none", "none"]
    rows = [[0, *common, "A cat.", "A dog.", "1.250"], [1, *common, "A.", "A.", "5.0"]]
    write_tsv(folder / "train.tsv", header, *rows)
    write_tsv(folder / "dev.tsv", header, *rows)
    write_tsv(folder / "test.tsv", header[:-1], rows[0][:-1])


def write_msr(folder: Path) -> None:
    """MRPC as Microsoft has it, with the ids of the dev examples apart."""
    # each example of train has one of the ids of that of dev
    rows = [[1, 100, 201, "One text.", "A text."], [0, 200, 201, "Two.", "Other."]]
    rows += [[1, 200, 301, '"Three" it was.', "It was three."]]
    write_tsv(folder / "msr_paraphrase_train.txt", MSR_HEADER, *rows)
    write_tsv(folder / "msr_paraphrase_test.txt", MSR_HEADER, [1, 1, 2, "Old.", "New."])
    for path in folder.glob("msr_*.txt"):
        path.write_text("\ufeff" + path.read_text(encoding="utf-8"), encoding="utf-8")
    write_tsv(folder / "dev_ids.tsv", ["#1 ID", "#2 ID"], [200, 201])


def write_originals(folder: Path) -> Path:
    """All tasks as tab-separated files."""
    writers = {"MNLI": _mnli, "QNLI": _qnli, "QQP": _qqp, "SST-2": _sst2}
    writers |= {"MRPC": write_msr, "CoLA": _cola, "RTE": _rte, "STS-B": _stsb}
    for name, write in writers.items():
        write(folder / name)
    return folder


def hub_dataset(task: str, rows: dict[str, list[list]]):
    """A DatasetDict as the hub has it: by its splits, rows of texts and label."""
    import datasets

    task = TASKS[task]
    columns = [column[0] for column in (task.text, task.pair) if column]
    names = list(task.hub_labels or task.labels or ())
    label = datasets.ClassLabel(names=names) if names else datasets.Value("float32")
    features = {column: datasets.Value("string") for column in columns}
    features |= {"label": label, "idx": datasets.Value("int32")}
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_list(
                [
                    dict(zip([*columns, "label", "idx"], [*row, i], strict=True))
                    for i, row in enumerate(content)
                ],
                features=datasets.Features(features),
            )
            for split, content in rows.items()
        }
    )


def write_hub_layout(folder: Path, dataset) -> None:
    """One parquet file a split, named as on the hub."""
    folder.mkdir(parents=True)
    for split, rows in dataset.items():
        rows.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


def report_of(folder: Path) -> dict:
    """The folder's report.json."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def table_of(folder: Path, split: str) -> list[list[str]]:
    """The rows of the readable table, the header left out."""
    text = (folder / f"{split}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()][1:]

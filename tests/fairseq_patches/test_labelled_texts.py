"""Labels that do not belong to their texts are refused before anything is trained."""

import pytest
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from fairseq.tasks.sentence_prediction import SentencePredictionConfig
from fairseq_cli import train
from omegaconf import OmegaConf

from fairseq_transnormer.fairseq_patches.labelled_texts import COLUMNS
from tests.binary_data import numbered_words, write_binary_data, write_labelled_data
from tests.messages import refuses
from tests.paths import USER_DIR

TEXTS = {"train": ["w1 w2", "w3", "w4 w5 w6"], "valid": ["w1", "w2"]}


def task_of(folder, **settings):
    """sentence_prediction, as a training sets it up."""
    given = {"data": str(folder), "num_classes": 1, "regression_target": True}
    given |= {"seed": 1, "max_positions": 64, **settings}
    config = OmegaConf.merge(OmegaConf.structured(SentencePredictionConfig), given)
    OmegaConf.set_struct(config, False)
    config._name = "sentence_prediction"
    return tasks.setup_task(config)


def fine_tuning(folder, save_dir):
    """Options of fairseq-train: sentence_prediction of two classes."""
    return [
        *(str(folder), "--user-dir", str(USER_DIR), "--cpu", "--num-workers", "0"),
        *(
            "--task",
            "sentence_prediction",
            "--criterion",
            "sentence_prediction_metrics",
        ),
        *("--arch", "roberta_transnormer_t2_tiny", "--max-positions", "64"),
        *("--num-classes", "2", "--init-token", "0", "--optimizer", "adam"),
        *("--batch-size", "2", "--save-dir", str(save_dir / "checkpoints")),
        *("--max-update", "4"),
    ]


@pytest.fixture
def scores(tmp_path):
    """A folder of texts with scores; gives their file of a split."""
    write_binary_data(tmp_path / "input0", numbered_words(8), TEXTS)
    (tmp_path / "label").mkdir()
    for split, texts in TEXTS.items():
        lines = "".join(f"0.{at}\n" for at, _ in enumerate(texts))
        (tmp_path / "label" / f"{split}.label").write_text(lines)
    return tmp_path / "label" / "train.label"


def test_scores_are_loaded_in_their_order(scores):
    task = task_of(scores.parent.parent)
    dataset = task.load_dataset("train")
    found = {int(dataset[i]["id"]): dataset[i]["target"] for i in range(len(dataset))}
    assert [float(score[0]) for _, score in sorted(found.items())] == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "good", "", "0.1 0.2", "0,5"])
def test_a_line_that_is_no_score_is_named(scores, bad):
    lines = scores.read_text().splitlines()
    scores.write_text("\n".join([lines[0], bad, lines[2]]) + "\n")
    with refuses(ValueError, scores, "line 2", "finite"):
        task_of(scores.parent.parent).load_dataset("train")
    task_of(scores.parent.parent).load_dataset("valid")


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_scores_than_of_texts_is_refused(scores, count):
    scores.write_text("0.5\n" * count)
    with refuses(ValueError, scores, f"{count} examples", "3"):
        task_of(scores.parent.parent).load_dataset("train")


def test_several_scores_of_an_example(scores):
    scores.write_text("0.1 0.2\n0.3 0.4\n0.5 0.6\n")
    dataset = task_of(scores.parent.parent, num_classes=2).load_dataset("train")
    assert len(dataset[0]["target"]) == 2
    with refuses(ValueError, "line 1", "num_classes=3"):
        task_of(scores.parent.parent, num_classes=3).load_dataset("train")


def test_a_split_without_scores_can_be_read(scores):
    scores.unlink()
    assert "target" not in task_of(scores.parent.parent).load_dataset("train")[0]


def test_scores_that_are_to_be_classes_are_refused(scores):
    names = scores.parent / "dict.txt"
    with refuses(ValueError, names, "regression_target"):
        task_of(scores.parent.parent, regression_target=False)


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_column_of_another_length_is_named(tmp_path, column):
    classes = {split: ["yes"] * len(texts) for split, texts in TEXTS.items()}
    write_labelled_data(tmp_path, numbered_words(8), TEXTS, ["no", "yes"], classes)
    write_binary_data(tmp_path / "input1", numbered_words(8), TEXTS)
    settings = {"num_classes": 2, "regression_target": False}
    task_of(tmp_path, **settings).load_dataset("train")
    for file in tmp_path.glob(f"{column}/valid.*"):
        file.replace(file.with_name(file.name.replace("valid", "train")))
    with refuses(ValueError, tmp_path / column / "train.idx", "2 examples", "3"):
        task_of(tmp_path, **settings).load_dataset("train")


def test_shards_are_counted_together(tmp_path):
    texts = {"train": TEXTS["train"], "train1": TEXTS["valid"]}
    classes = {split: ["yes"] * len(lines) for split, lines in texts.items()}
    write_labelled_data(tmp_path, numbered_words(8), texts, ["no", "yes"], classes)
    task = task_of(tmp_path, num_classes=2, regression_target=False)
    assert len(task.load_dataset("train", combine=True)) == 5
    for file in tmp_path.glob("label/train1.*"):
        file.unlink()
    with refuses(ValueError, tmp_path / "label" / "train.idx", "3 examples", "5"):
        task.load_dataset("train", combine=True)


def test_classes_beyond_their_number_are_named(tmp_path):
    rows = {"train": ["a", "b", "a"], "valid": ["a", "c"]}
    write_labelled_data(tmp_path, numbered_words(8), TEXTS, list("abc"), rows)
    task_of(tmp_path, num_classes=3, regression_target=False).load_dataset("valid")
    task = task_of(tmp_path, num_classes=2, regression_target=False)
    task.load_dataset("train")
    file = tmp_path / "label" / "valid.bin"
    with refuses(ValueError, file, "line 2", "'c'", "task.num_classes=2"):
        task.load_dataset("valid")


@pytest.mark.parametrize("regression", [True, False])
def test_training_begins_with_labels_of_all_its_splits(tmp_path, regression):
    """fairseq misses those of the second validation set after an epoch."""
    words, folder = numbered_words(8), tmp_path / "data"
    texts = TEXTS | {"valid1": TEXTS["valid"]}
    classes = {split: ["yes"] * len(lines) for split, lines in texts.items()}
    write_labelled_data(folder, words, texts, ["no", "yes"], classes)
    for split, lines in texts.items():
        (folder / "label" / f"{split}.label").write_text("0.5\n" * len(lines))
    for file in folder.glob("label/valid1.*"):
        file.unlink()
    given = [*fine_tuning(folder, tmp_path), "--valid-subset", "valid,valid1"]
    given += ["--regression-target", "--num-classes", "1"] if regression else []
    cfg = parse_args_and_arch(get_training_parser(), given)
    file = folder / "label" / f"valid1.{'label' if regression else 'bin'}"
    with refuses(ValueError, file, "valid_subset"):
        train.main(convert_namespace_to_omegaconf(cfg))
    assert not list(tmp_path.glob("checkpoints/*.pt"))

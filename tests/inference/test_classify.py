"""Labels for texts: by the model's outputs, whatever runs in the same batch."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary

from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.labelled_texts import SentenceData
from fairseq_transnormer.inference import TextClassifier
from tests.binary_data import dictionary_of
from tests.commands import command
from tests.inference.problems import dictionary, write_problem
from tests.messages import assert_names, command_refuses, refuses
from tests.zoo import fine_tuning, save

main = command("classify")
TEXTS = ["w1 w2 w3", "w30 w31", " ".join(f"w{i % 40}" for i in range(300)), "w5"]


def saved(folder, data, *arguments, classes=2, identity=False):
    """A checkpoint of a tiny model with random weights, as fairseq-train writes it."""
    path = folder / "checkpoint_best.pt"
    save(path, data, *(arguments or fine_tuning(classes)), identity=identity)
    return path


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    return saved(folder, write_problem(folder / "data"))


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_a_text_alone_and_among_others(tmp_path, pooling):
    arguments = fine_tuning(pooling=pooling)
    path = saved(tmp_path, write_problem(tmp_path / "data"), *arguments)
    classifier = TextClassifier.from_checkpoint(path, device="cpu")
    rows = [torch.tensor(classifier.encode(text)) for text in TEXTS]
    logits = classifier.outputs(rows)
    assert all(torch.pdist(logits) > 0.001)
    for row, expected in zip(rows, logits, strict=True):
        torch.testing.assert_close(
            classifier.outputs([row])[0], expected, rtol=1e-5, atol=1e-6
        )
    (model,), *_ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    together = classifier.classify(TEXTS)
    for text, expected in zip(TEXTS, together, strict=True):
        (alone,) = classifier.classify([text])
        assert alone.label == expected.label
        assert alone.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
        tokens = torch.tensor([classifier.encode(text)])
        scores, _ = model.eval()(
            tokens, classification_head_name="sentence_classification_head"
        )
        label = ["no", "yes"][scores[0].argmax()]
        assert (label, alone.probabilities[label]) == (
            alone.label, pytest.approx(scores[0].softmax(-1).max().item(), abs=1e-5)
        )  # fmt: skip


@pytest.mark.parametrize("labels", [("no", "yes"), ()])
def test_a_split_is_what_fairseq_reads(tmp_path, labels):
    """... of a pair problem; and its texts, cut up here, are these tokens."""
    data = write_problem(tmp_path / "data", labels, pairs=True)
    path = saved(tmp_path, data, classes=len(labels) or 1)
    classifier = TextClassifier.from_checkpoint(path, device="cpu")
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    dataset, found = task.load_dataset("valid"), classifier.data
    rows, targets = found.tokens("valid"), found.targets("valid")
    assert len(rows) == len(targets) == len(dataset) == 21
    for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
        assert row.tolist() == dataset[i]["net_input.src_tokens"].tolist()
        expected = float(np.asarray(dataset[i]["target"]).item())
        assert target == pytest.approx(expected * found.target_scale)
        middle = row.tolist().index(2)
        parts = (row[1:middle], row[middle + 2 : -1])
        pair = tuple(task.dictionary.string(torch.tensor(part)) for part in parts)
        assert classifier.encode(pair) == row.tolist()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Of pairs, whose inputs have up to 12 tokens."""
    folder = tmp_path_factory.mktemp("short")
    data = write_problem(folder / "data", pairs=True, max_positions=12)
    return TextClassifier.from_checkpoint(saved(folder, data), device="cpu")


def test_pairs_and_what_does_not_fit(short):
    words, pair = dictionary(), ("w0 w1 w2 w3 w4 w5", "w6 w7 w8")
    ids = short.encode(pair)
    assert words.string(ids, extra_symbols_to_ignore={}) == "w0 w1 w2 w3 w4 w6 w7 w8"
    assert [ids[0], ids[6], ids[7], ids[-1]] == [0, 2, 2, 2] and len(ids) == 12
    assert len(short.encode((" ".join(["w1"] * 50), "w2"))) == 12
    assert short.tokens_cut(pair) == 1
    left = [short.tokens_cut((" ".join(["w1"] * n), "w2")) for n in (7, 8, 50)]
    assert left == [0, 1, 43]


@pytest.mark.parametrize("gap", ["\n", "\t", "\r\n", "\v", "\x85", "\u2028"])
def test_texts_are_cut_as_those_of_the_fine_tuning(gap, single):
    """... in which a space stands for what breaks a line or a column."""
    classifier = TextClassifier.from_checkpoint(single, device="cpu")
    ids = classifier.encode("w1 w2 w3")
    assert classifier.encode(f"w1{gap}w2 w3{gap}") == ids and 3 not in ids


def test_labels_and_length_without_the_data(tmp_path, capsys):
    """A checkpoint, or its export, knows them; earlier ones do not."""
    data = write_problem(tmp_path / "data", max_positions=12)
    for identity in (True, False):
        path = saved(tmp_path, data, identity=identity)
        expected = TextClassifier.from_checkpoint(path).classify(TEXTS)
        shutil.copy(data / "input0/dict.txt", tmp_path)
        hidden = data.rename(tmp_path / "gone")
        if identity:
            export_checkpoint(path, tmp_path / "out")
            for each in (path, tmp_path / "out"):
                found = TextClassifier.from_checkpoint(each)
                for one, other in zip(found.classify(TEXTS), expected, strict=True):
                    assert one.label == other.label
                    assert one.probabilities == pytest.approx(other.probabilities)
                with refuses((OSError, ValueError), data if each == path else "--data"):
                    found.classify_split("valid")
            state = torch.load(path, weights_only=True)
            del state["extra_state"]["max_positions"]
            torch.save(state, path)
            assert main(["--path", str(path), "--text", "w1"]) == 0
            assert_names(capsys.readouterr().err, "note", data / "report.json", "cut")
        else:
            with refuses(CheckpointError, path, "labels", "--data"):
                TextClassifier.from_checkpoint(path)
        hidden.rename(data)


def test_regression_is_on_the_scale_of_its_labels(tmp_path):
    data = write_problem(tmp_path / "data", labels=(), pairs=True, task="STS-B")
    path = saved(tmp_path, data, classes=1)
    classifier = TextClassifier.from_checkpoint(path, device="cpu")
    (found,) = classifier.classify([("w1 w2", "w3")])
    output = classifier.outputs([torch.tensor(classifier.encode(("w1 w2", "w3")))])
    assert found.label is None and found.score == pytest.approx(5 * output.item())
    with refuses(ValueError, "text 1", "1 parts", 2):
        classifier.classify(["w1"])
    (data / "label/valid.label").write_text("0.5264\n" * 21)
    table = tmp_path / "predictions.tsv"
    classifier.evaluate("valid", table)
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    assert {label for _, label, _ in rows} == {"2.632"}
    (data / "label/valid.label").write_text("6.37e-07\n" * 21)
    assert {*SentenceData.read(data).targets("valid")} == {3.185e-06}


def refused(paths, data, capsys, *parts):
    """Texts and splits, by a checkpoint and its export."""
    for path in paths:
        for what in (["--text", "w1"], ["--evaluate", "valid"]):
            words = ["--path", path, "--data", data, *what]
            command_refuses(main, words, capsys, *parts, alone=True)


@pytest.mark.parametrize(
    ("labels", "others"),
    [(("neg", "pos"), ("pos", "neg")), (("neg", "pos"), ("ham", "spam")), ((), ())],
)
def test_labels_that_are_not_those_of_the_fine_tuning(tmp_path, labels, others, capsys):
    data = write_problem(tmp_path / "data", labels)
    other = write_problem(tmp_path / "other", others)
    if not labels:
        report = json.loads((other / "report.json").read_text())
        report["target_scale"] = 1.0
        (other / "report.json").write_text(json.dumps(report))
    path = saved(tmp_path, data, classes=len(labels) or 1, identity=True)
    out = tmp_path / "exported"
    export_checkpoint(path, out)
    named = ["'neg', 'pos'", str(list(others))] if labels else ["5.0", "1.0"]
    refused([path, out], other, capsys, other, *named)
    with refuses(CheckpointError, path, other, *named, alone=True):
        export_checkpoint(path, tmp_path / "another", other)
    with refuses(ValueError, path, *named):  # fairseq's own commands
        checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(other)})
    moved = data.rename(tmp_path / "moved")
    for each in (path, out):
        assert main(["--path", each, "--data", moved, "--evaluate", "valid"]) == 0
    export_checkpoint(path, tmp_path / "without data")
    for folder in (out, tmp_path / "without data"):
        manifest = load(folder).manifest
        assert manifest.labels == list(labels)
        assert manifest.head.target_scale == (1.0 if labels else 5.0)


@pytest.mark.parametrize("units", ["pieces", "GPT-2's, of an earlier version"])
def test_units_that_are_not_those_of_the_fine_tuning(
    units, zoo, gpt2_dir, tmp_path, capsys
):
    """A sentencepiece model, damaged or foreign; merges, of which one is lost."""
    if units == "pieces":
        folder, names = zoo.data["pieces"], ["sentencepiece.bpe.model"]
        words = Dictionary.load(str(folder / "dict.txt"))
    else:
        folder, names = gpt2_dir, ["encoder.json", "vocab.bpe"]
        words = dictionary_of(map(str, range(50_257)))
    data = write_problem(tmp_path / "data", words=words)
    for name in names:
        shutil.copy(folder / name, data)
    used = data / names[-1]
    content = used.read_bytes()
    if units == "pieces":
        path, foreign = saved(tmp_path, data, identity=True), io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS), model_writer=foreign, vocab_size=16,
            minloglevel=2,
        )  # fmt: skip
        others = [content[:-1] + b"\1", content[: len(content) // 2]]
        others.append(foreign.getvalue())
    else:
        report = json.loads((data / "report.json").read_text())
        report["files"] = {n: {"sha256": file_sha256(data / n)} for n in names}
        (data / "report.json").write_text(json.dumps(report))
        path = saved(tmp_path, data)
        merges = content.splitlines(keepends=True)
        others = [b"".join(merges[:9] + merges[10:])]
    out = tmp_path / "exported"
    export_checkpoint(path, out)
    for other in others:
        used.write_bytes(other)
        refused([path, out], data, capsys, used)
        with refuses(CheckpointError, used, alone=True):
            export_checkpoint(path, tmp_path / "another")
    used.write_bytes(content)
    (out / used.name).write_bytes(others[0])
    refused([out], data, capsys, out / used.name)


def test_command_line(single, capsys, monkeypatch):
    arguments = ["--path", str(single), "--device", "cpu"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS) + "\n"))
    assert main([*arguments, "--input", "-", "--json", "--batch-size", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    classifier = TextClassifier.from_checkpoint(single, device="cpu")
    labels = [each.label for each in classifier.classify(TEXTS)]
    assert [line["label"] for line in lines] == labels
    weights = weights_fingerprint(single)
    assert {line["weights"] for line in lines} == {weights}
    assert sum(lines[0]["probabilities"].values()) == pytest.approx(1)
    assert main([*arguments, "--evaluate", "valid"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["weights"], found["split"]) == (weights, "valid")
    assert found["data"] == classifier.data.fingerprint()


def test_outputs_that_are_no_numbers(single, tmp_path, capsys):
    state = torch.load(single, weights_only=False)
    for name, weight in state["model"].items():
        if "feed_forward" in name and weight.dim() == 2:
            weight.mul_(1e30)
    torch.save(state, tmp_path / "checkpoint_best.pt")
    words = [
        "--path",
        tmp_path / "checkpoint_best.pt",
        "--data",
        single.parent / "data",
    ]
    for more in (["--text", "w1"], ["--evaluate", "valid"]):
        command_refuses(main, [*words, *more], capsys, "NaN", "overflow")


def test_a_byte_order_mark_and_words_that_are_not_known(single, tmp_path, capsys):
    path = tmp_path / "texts.txt"
    path.write_text("w1 w2\nw1 w2\nw1 apple pear\n", encoding="utf-8-sig")
    assert main(["--path", str(single), "--input", str(path)]) == 0
    output, errors = capsys.readouterr()
    first, second, _ = output.splitlines()
    assert first == second
    assert_names(errors, "text 3", "2 not in the dictionary", "apple, pear")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("task", "labels", "first"),
    [
        ("MRPC", ("not_equivalent", "equivalent"), {"0", "1"}),
        ("QNLI", ("entailment", "not_entailment"), {"entailment", "not_entailment"}),
    ],
)
def test_submissions(tmp_path, capsys, task, labels, first):
    data = write_problem(tmp_path / "data", labels, task=task, pairs=True)
    path = str(saved(tmp_path, data))
    out = tmp_path / "out"
    assert main(["--path", path, "--submission", str(out)]) == 0
    (file,) = out.iterdir()
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    assert file.name == f"{task}.tsv" and rows[0] == ["index", "prediction"]
    assert [row[0] for row in rows[1:]] == list("01234")
    assert {row[1] for row in rows[1:]} <= first


def test_f1_is_about_the_class_of_the_fine_tuning(single, tmp_path, capsys):
    """checkpoint_best.pt was chosen by that figure."""
    state = torch.load(single, weights_only=False)
    state["cfg"]["criterion"]["positive_class"] = 0
    path = str(tmp_path / single.name)
    torch.save(state, path)
    data = str(single.parent / "data")
    found = []
    for chosen in ([], ["--positive-class", "0"], ["--positive-class", "1"]):
        words = ["--path", path, "--data", data, "--evaluate", "valid"]
        assert main([*words, *chosen]) == 0
        found.append(json.loads(capsys.readouterr().out)["f1"])
    assert found[0] == found[1] != found[2]


def test_a_submission_lacks_no_example(tmp_path, capsys):
    """The server counts: behind a line that was left out all answers are shifted."""
    data = write_problem(
        tmp_path / "data", ("not_equivalent", "equivalent"), task="MRPC", pairs=True
    )
    path = str(saved(tmp_path, data))
    report = json.loads((data / "report.json").read_text())
    report["malformed"] = {"train": {"skipped": 3}, "test": {"skipped": 1}}
    (data / "report.json").write_text(json.dumps(report))
    out = tmp_path / "out"
    words = ["--path", path, "--submission", str(out)]
    command_refuses(main, words, capsys, data, "test", 1, alone=True)
    report["malformed"]["test"]["skipped"] = 0
    (data / "report.json").write_text(json.dumps(report))
    assert main(words) == 0


def copy_of(single, folder):
    shutil.copytree(single.parent, folder)
    return folder / single.name, folder / "data"


def test_a_dictionary_of_equal_size(single, tmp_path, capsys):
    path, data = copy_of(single, tmp_path / "copy")
    state = torch.load(path, weights_only=True)
    words = SentenceData.read(data)
    state["extra_state"]["dictionary_sha256"] = words.dictionary_sha256
    torch.save(state, path)
    assert main(["--path", str(path), "--data", str(data), "--text", "w1"]) == 0
    export_checkpoint(path, tmp_path / "out", data)
    lines = (data / "input0/dict.txt").read_text().splitlines()
    (data / "input0/dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    for each in (path, tmp_path / "out"):
        refused([each], data, capsys, each, "dictionary_sha256", "--data")
    # the start of a fine-tuning, where the folder of the pre-training is gone
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, path)
    # one of another program names its data only
    shutil.copytree(single.parent / "data", tmp_path / "its data")
    state["cfg"]["task"]["data"] = str(tmp_path / "its data")
    del state["extra_state"]["dictionary_sha256"]
    torch.save(state, tmp_path / "other.pt")
    starts = [PretrainedCheckpoint.read(each) for each in (path, tmp_path / "other.pt")]
    for start in starts:
        known = (start.path, words.dictionary_sha256, data / "input0/dict.txt")
        with refuses(ValueError, *known):
            start.check_data(SentenceData.read(data))
    (data / "input0/dict.txt").write_text("\n".join(lines) + "\n")
    for start in starts:
        start.check_data(SentenceData.read(data))

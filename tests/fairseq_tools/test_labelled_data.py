"""Data of ``data_prep`` from pre-training to a tuned classifier."""

import random

import torch

from tests.data_prep.commands import classification, text

from .conftest import fine_tuning_arguments, training_arguments, words_of_documentation

ARCH = "roberta_transnormer_t2_tiny"


def test_labelled_texts_are_encoded_as_the_checkpoint_was(
    fairseq_tool, tmp_path, capsys
):
    paragraphs = [" ".join(words) for words in words_of_documentation()[:300]]
    (tmp_path / "train.txt").write_text("\n".join(paragraphs))
    (tmp_path / "valid.txt").write_text("\n".join(paragraphs[:8]))
    data, labelled = tmp_path / "data", tmp_path / "labelled"
    files = ["--train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    options = ["--tokenizer", "sentencepiece", "--vocab-size", 500, "--dest", data]
    assert text([str(each) for each in [*options, *files]]) == 0
    options = training_arguments(ARCH, tmp_path / "pre", max_update=1)
    fairseq_tool("train", data, *options, "--cpu")
    checkpoint = tmp_path / "pre" / "checkpoint_last.pt"

    draw = random.Random(0)
    header = "premise\tclaim\tverdict\n"
    rows = [
        f"{draw.choice(paragraphs)[:80]}\tIt is {label} {label}\t{label}\n"
        for label in draw.choices(["good", "bad"], k=80)
    ]
    (tmp_path / "train.tsv").write_text(header + "".join(rows[:64]))
    (tmp_path / "valid.tsv").write_text(header + "".join(rows[64:]))
    options = ["--dest", labelled, "--checkpoint", checkpoint]
    options += ["--train", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv"]
    options += ["--text-column", "premise", "--pair-column", "claim"]
    options += ["--label-column", "verdict"]
    command = [str(each) for each in options]
    assert classification(command) == 0
    for part in ("input0", "input1"):
        dictionary = (labelled / part / "dict.txt").read_bytes()
        assert dictionary == (data / "dict.txt").read_bytes()
    assert classification([*command, "--max-positions", "100000"]) == 2
    assert f"512 for {checkpoint}" in capsys.readouterr().err

    options = fine_tuning_arguments(
        ARCH, tmp_path / "tuned", max_update=60, finetune_from_model=checkpoint
    )
    fairseq_tool("train", labelled, *options)
    state = torch.load(tmp_path / "tuned/checkpoint_best.pt", weights_only=False)
    assert state["extra_state"]["best"] > 80

    # a dictionary of another size is no longer the checkpoint's
    (data / "report.json").unlink()  # which would tell that it was changed
    with open(data / "dict.txt", "a") as file:
        file.write("more 1\n")
    assert classification([*command, "--dest", str(tmp_path / "other")]) == 2
    message = capsys.readouterr().err
    assert str(data / "dict.txt") in message, message
    assert not (tmp_path / "other").exists()

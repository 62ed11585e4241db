"""``python -m fairseq_transnormer score``: what it prints, and what it refuses."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from sentencepiece import sentencepiece_model_pb2

from fairseq_transnormer.checkpoints.identity import UNITS_KEY, weights_fingerprint
from fairseq_transnormer.export import ExportError
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.generation import GenerationError, TextGenerator
from fairseq_transnormer.scoring import (
    Context,
    ScoringError,
    TextScore,
    TextScorer,
    command_line,
)
from tests.messages import assert_names, command_refuses, refuses


@pytest.fixture(scope="module")
def path(zoo):
    return zoo.checkpoints["t2"]


@pytest.fixture
def run(capsys, path):
    """The command; exit status, stdout, stderr."""

    def run(*arguments):
        words = ["--path", path, "--device", "cpu", *arguments]
        status = command_line.main([str(each) for each in words])
        return status, *capsys.readouterr()

    return run


def rows(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_json_of_lines_and_their_sum(run, path, text_file):
    status, out, err = run("--input", text_file, "--by", "line", "--json")
    *found, total = rows(out)
    lines = text_file.read_text().splitlines()
    scores = TextScorer.from_checkpoint(path, device="cpu").score(lines)
    assert status == 0 and len(found) == len(lines) > 24
    assert [row["line"] for row in found] == list(range(1, len(lines) + 1))
    # as fairseq-eval-lm, which predicts the end of a blank line, too
    assert total["lines"] == len(lines) == lines.count("") + 24
    for row, score in zip(found, scores, strict=True):
        assert row["input"] == str(text_file)
        for name, value in score.as_dict().items():
            assert row[name] == pytest.approx(value, rel=1e-6), name
    assert total["total"] is True
    assert total["weights"] == weights_fingerprint(path)
    assert_names(total["context"], "windows of 64 tokens")
    for name in ("log_prob", "tokens", "words", "bytes", "unknown"):
        assert total[name] == pytest.approx(sum(row[name] for row in found))
    assert total["unknown"] == 1
    assert_names(err, "1 of", "<unk>")


def test_documents_lie_between_blank_lines(run, text_file):
    _, out, _ = run("--input", text_file, "--by", "document", "--json")
    *found, total = rows(out)
    assert [(row["line"], row["lines"]) for row in found] == [(1, 4), (6, 6), (13, 14)]
    _, out, _ = run("--input", text_file, "--by", "document", "--json", "--stream")
    for row, alone in zip(rows(out), [*found, total], strict=True):
        assert row["log_prob"] == pytest.approx(alone["log_prob"], rel=1e-6)
    _, out, _ = run("--input", text_file, "--json")
    whole = rows(out)[0]
    # the blank lines are tokens of the file, and not of its documents
    assert whole["tokens"] == total["tokens"] + 2
    assert whole["bytes"] == len(text_file.read_bytes())


def test_table(run, text_file):
    status, out, _ = run("--input", text_file, "--window", 16, "--overlap", 4)
    assert status == 0
    said, header, row, total = out.splitlines()
    assert_names(said, "nats", "windows of 16 tokens", "4")
    assert len(header.split()) == 8 and row.split()[:8] == total.split()[:8]
    assert_names(total, "total")


def test_tokens(run):
    _, out, _ = run("--text", "the river", "--tokens")
    found = [line.split() for line in out.splitlines() if line.split()[-1] != "total"]
    values = {row[1]: float(row[0]) for row in found if len(row) == 2}
    assert list(values) == ["the", "river", "</s>"]
    assert float(out.splitlines()[-1].split()[0]) == pytest.approx(
        sum(values.values()), abs=1e-3
    )


def test_a_carried_state_is_told(run, text_file):
    """And that it is longer than what the model was trained on."""
    _, out, err = run("--input", text_file, "--window", "all", "--json")
    row, total = rows(out)
    assert_names(total["context"], "all tokens before", "carried state")
    assert_names(err, f"{row['tokens']} tokens", "carried state", 64, "--window")
    *_, err = run("--input", text_file, "--window", "all", "--by", "line")
    assert "carried" not in err


def test_stdin(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the river\n\nit .\n"))
    status, out, _ = run("--input", "-", "--by", "line", "--stream", "--json")
    assert status == 0
    assert [(row.get("line"), row["tokens"]) for row in rows(out)] == [
        (1, 3),
        (2, 1),
        (3, 3),
        (None, 7),
    ]


def test_a_byte_order_mark_is_no_part_of_a_text(run, monkeypatch, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the river\n", encoding="utf-8-sig")
    with path.open(encoding="latin-1") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        _, of_stdin, _ = run("--input", "-", "--json")
    _, of_file, _ = run("--input", path, "--json")
    assert rows(of_stdin)[0]["log_prob"] == rows(of_file)[0]["log_prob"]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_of_stdin_end_as_those_of_a_file(run, monkeypatch, tmp_path, end):
    path = tmp_path / "text.txt"
    path.write_text("the river\nit .\n", newline=end)
    with path.open(newline="") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        _, of_stdin, _ = run("--input", "-", "--json")
    _, of_file, _ = run("--input", path, "--json")
    found, expected = (rows(each)[-1] for each in (of_stdin, of_file))
    assert found["bytes"] == len("the river\nit .\n")
    assert found == expected


@pytest.mark.parametrize("by", ["line", "document", "file"])
@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_where_a_mistake_is(run, monkeypatch, tmp_path, by, stream):
    monkeypatch.setattr(command_line, "UNITS_AT_ONCE", 2)
    path = tmp_path / "text.txt"
    path.write_text("the river\n\n" * 4 + "it .\nthe </s>\n")
    *_, err = run("--input", path, "--by", by, *stream)
    place = {"line": ":10", "document": ":9, line 2", "file": ", line 10"}[by]
    assert_names(err, f"{path}{place} contains", "</s>")


def test_what_is_printed_is_utf8(path):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    words = ["--path", str(path), "--device", "cpu", "--text", "the €", "--tokens"]
    with contextlib.redirect_stdout(terminal):
        assert command_line.main(words) == 0
        terminal.flush()
    assert "€" in terminal.buffer.getvalue().decode()


def test_masked_models_have_pseudo_log_likelihoods(run, zoo, text_file):
    path = zoo.checkpoints["roberta_transnormer_t2_tiny"]
    _, out, _ = run("--path", path, "--input", text_file, "--json", "--by", "line")
    total = rows(out)[-1]
    assert total["tokens"] == total["words"] and "log_prob" not in total
    assert total["pseudo_log_likelihood"] < 0
    assert_names(total["context"], "windows of 64 tokens")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--text the --window 0", ["--window", "'0'", "2 to"]),
        ("--text the --window al", ["--window", "'al'", "2 to"]),
        ("--text the --window all --overlap 3", ["--overlap 3"]),
        ("--text the --overlap 3", ["--overlap 3", "--window"]),
        ("--text the --window 9 --overlap 8", ["overlap=8", "0 to 7"]),
        ("--text the --by line", ["--by line", "--input"]),
        ("--text </s>", ["text 1", "'</s>'"]),
        ("--text=", ["no text"]),
        ("--text xyzzy", ["none of its 1", "--data"]),
        ("--input /nowhere.txt", ["/nowhere.txt", "No such file"]),
        ("--input /tmp", ["/tmp", "directory"]),
        ("--text the --path /nowhere.pt", ["/nowhere.pt", "no such"]),
        ("--text the --data /nowhere", ["dict.txt", "/nowhere"]),
        ("--text the --device abacus", ["device=abacus"]),
        ("--input {tmp_path}/0", ["0", "0xff"]),
        ("--input {tmp_path}/1", ["1", "no text"]),
        ("--input {tmp_path}/2 --by line", ["2", "none of its 6", "dictionary"]),
        ("--input {tmp_path}/2 --by file", ["2", "none of its 6", "dictionary"]),
    ],
)
def test_mistakes(path, tmp_path, capsys, arguments, parts):
    greek = "Γειά σου\n" * 3
    for number, content in enumerate((b"\xff\xfe", b"\n \n", greek.encode())):
        (tmp_path / str(number)).write_bytes(content)
    words = ["--path", path, "--device", "cpu"]
    words += arguments.format(tmp_path=tmp_path).split()
    command_refuses(command_line.main, words, capsys, "error", *parts)
    assert capsys.readouterr().out == ""


def test_contexts_that_a_model_cannot_have(zoo):
    for arch in ("vanilla_transformer_tiny", "roberta_transnormer_t2_tiny"):
        with refuses(ScoringError, "window=None", "allowed", "2 to", alone=True):
            TextScorer.from_checkpoint(
                zoo.checkpoints[arch], device="cpu", context=Context()
            )
    with refuses(ScoringError, "window=513", "2 to 512", alone=True):
        TextScorer.from_checkpoint(
            zoo.checkpoints[arch], device="cpu", context=Context(513)
        )


def changed(path, tmp_path, change) -> Path:
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, tmp_path / "changed.pt")
    return tmp_path / "changed.pt"


def test_checkpoints_of_other_models_and_tasks(path, tmp_path):
    def name(state):
        state["cfg"]["model"]["_name"] = "lstm_lm"

    def task(state):
        state["cfg"]["task"]["add_bos_token"] = True

    with refuses(ScoringError, "'lstm_lm'", "allowed", "transnormer_t2", alone=True):
        TextScorer.from_checkpoint(changed(path, tmp_path, name), device="cpu")
    with refuses(ScoringError, "add_bos_token=True", "allowed", alone=True):
        TextScorer.from_checkpoint(changed(path, tmp_path, task), device="cpu")


def test_tokenizers_that_do_not_fit(zoo, tmp_path):
    path, piece_folder = zoo.checkpoints["pieces"], zoo.data["pieces"]
    name = "sentencepiece.bpe.model"
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(piece_folder / "dict.txt", bare)
    with refuses(ScoringError, bare / "dict.txt", name, "--sentencepiece-model"):
        TextScorer.from_checkpoint(path, bare, device="cpu")
    # the same pieces, of a checkpoint of before and not what the data's report has
    state = torch.load(path, weights_only=False)
    del state["extra_state"][UNITS_KEY]
    path = tmp_path / "before.pt"
    torch.save(state, path)
    same = tmp_path / name
    same.write_bytes((piece_folder / name).read_bytes())
    prepared = tmp_path / "prepared"
    shutil.copytree(piece_folder, prepared)
    report = {"files": {name: {"sha256": "0" * 64}}}
    (prepared / "report.json").write_text(json.dumps(report))
    with refuses(ScoringError, name, "report.json", "0" * 64, alone=True):
        TextScorer.from_checkpoint(
            path, prepared, device="cpu", sentencepiece_model=same
        )


def test_units_that_are_not_those_of_the_training(zoo, tmp_path):
    """The same pieces in the same order, with other scores: other cuts of words."""
    path, piece_folder = zoo.checkpoints["pieces"], zoo.data["pieces"]
    data = tmp_path / "data"
    shutil.copytree(piece_folder, data)
    model = data / "sentencepiece.bpe.model"
    content = sentencepiece_model_pb2.ModelProto.FromString(model.read_bytes())
    for piece in content.pieces[3:]:
        piece.score = -piece.score
    for changed in (content.SerializeToString(), model.read_bytes()[:-5], b""):
        model.write_bytes(changed)
        with refuses(ScoringError, model, path, "SHA-256", alone=True):
            TextScorer.from_checkpoint(path, data, device="cpu")
        with refuses(ScoringError, model, path, "SHA-256", alone=True):
            TextScorer.from_checkpoint(path, device="cpu", sentencepiece_model=model)
        with refuses(GenerationError, model, path, "SHA-256", alone=True):
            TextGenerator.from_checkpoint(path, data, device="cpu")
        with refuses(ExportError, model, path, "SHA-256", alone=True):
            export_checkpoint(path, tmp_path / "exported", data)
    shutil.copy(piece_folder / model.name, model)
    export_checkpoint(path, tmp_path / "exported", data)


def test_scores_add_up():
    one = TextScore(-3.0, 4, 1, 3, 10, 0, token_log_probs=[("a", -3.0)])
    two = TextScore(-5.0, 6, 2, 4, 20, 1)
    assert one + two == TextScore(-8.0, 10, 3, 7, 30, 1)
    assert TextScore().perplexity is None and TextScore().bits_per_byte is None
    assert TextScore(-1e6, 2).perplexity == float("inf")


@pytest.mark.parametrize("nats", [20, 120, 3000])
def test_columns_stay_apart(capsys, nats):
    """Perplexities a word of an untrained model have any number of digits."""
    found = TextScore(-float(nats), 10, 1, 4, 20, 0)
    command_line._print_row(found, "a.txt")
    *figures, name = capsys.readouterr().out.split()
    assert name == "a.txt"
    assert len(figures) == len(command_line.COLUMNS)
    shown = figures[command_line.COLUMNS.index("ppl/word")].replace(",", "")
    assert float(shown) == pytest.approx(found.word_perplexity, rel=1e-3)


def test_a_perplexity_that_no_number_holds_is_null_in_json(capsys):
    """As of one line without spaces, which is a single word."""
    found = TextScore(-3000.0, 400, 1, 1, 900, 0)
    command_line._print_json(found.as_dict())
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed["word_perplexity"] is None
    assert printed["perplexity"] == found.perplexity

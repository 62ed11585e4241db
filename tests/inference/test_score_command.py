"""``python -m fairseq_transnormer score``: what it prints, and what it refuses."""

import contextlib
import io
import json
import os
import sys

import pytest

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.inference import TextScore, TextScorer, score_command
from tests.commands import command
from tests.inference.models import sentences
from tests.messages import assert_names, command_refuses

main = command("score")


@pytest.fixture
def text_file(tmp_path):
    """Lines as the models know them, blank ones and an unknown word among them."""
    lines = sentences(23)
    lines[4:4] = [""]
    lines[11:11] = ["", "the xyzzy river crosses"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}{os.linesep}" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def path(zoo):
    return zoo.checkpoints["t2"]


@pytest.fixture
def run(capsys, path):
    """The command; exit status, stdout, stderr."""

    def run(*arguments):
        words = ["--path", path, "--device", "cpu", *arguments]
        status = main(words)
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


def test_files_may_be_named_together_or_one_by_one(run, text_file):
    together = rows(run("--input", text_file, text_file, "--json")[1])
    assert len(together) == 3
    one_by_one = ("--input", text_file, "--input", text_file)
    assert rows(run(*one_by_one, "--json")[1]) == together


def test_a_table_with_tokens(run, text_file):
    arguments = ("--input", text_file, "--window", 16, "--overlap", 4)
    said, header, row, total = run(*arguments)[1].splitlines()
    assert_names(said, "nats", "windows of 16 tokens", "4")
    assert len(header.split()) == 8 and row.split()[:8] == total.split()[:8]
    assert_names(total, "total")
    _, out, _ = run("--text", "the river", "--tokens")
    *_, total = lines = [line.split() for line in out.splitlines()]
    values = {line[1]: float(line[0]) for line in lines if len(line) == 2}
    assert list(values) == ["the", "river", "</s>"]
    assert float(total[0]) == pytest.approx(sum(values.values()), abs=1e-3)


def test_a_carried_state_is_told(run, text_file):
    """And that it is longer than what the model was trained on."""
    _, out, err = run("--input", text_file, "--window", "all", "--json")
    row, total = rows(out)
    assert_names(total["context"], "all tokens before", "carried state")
    assert_names(err, f"{row['tokens']} tokens", "carried state", 64, "--window")
    *_, err = run("--input", text_file, "--window", "all", "--by", "line")
    assert "carried" not in err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_stdin_is_read_as_a_file(run, monkeypatch, tmp_path, end):
    """Its lines' ends, UTF-8 whatever the locale, and no byte order mark."""
    path = tmp_path / "text.txt"
    path.write_text("the river\n\nit €\n", encoding="utf-8-sig", newline=end)
    given = ("--by", "line", "--stream", "--json")
    with path.open(newline="", encoding="latin-1") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = rows(run("--input", "-", *given)[1])
    expected = rows(run("--input", path, *given)[1])
    assert [row["tokens"] for row in found] == [3, 1, 3, 7]
    assert found == [
        each | ({"input": "-"} if "input" in each else {}) for each in expected
    ]
    assert found[-1]["bytes"] == len("the river\n\nit €\n".encode())
    assert not found[-1]["unknown"]


@pytest.mark.parametrize("by", ["line", "document", "file"])
@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_where_a_mistake_is(run, monkeypatch, tmp_path, by, stream):
    monkeypatch.setattr(score_command, "UNITS_AT_ONCE", 2)
    path = tmp_path / "text.txt"
    path.write_text("the river\n\n" * 4 + "it .\nthe </s>\n")
    *_, err = run("--input", path, "--by", by, *stream)
    place = {"line": ":10", "document": ":9, line 2", "file": ", line 10"}[by]
    assert_names(err, f"{path}{place} contains", "</s>")


def test_what_is_printed_is_utf8(path):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    words = ["--path", str(path), "--device", "cpu", "--text", "the €", "--tokens"]
    with contextlib.redirect_stdout(terminal):
        assert main(words) == 0
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
        ("--text the --window 0", ["window=0", "2 to"]),
        ("--text the --window al", ["--window", "'al'", "all"]),
        ("--text the --window all --overlap 3", ["overlap=3", "--window"]),
        ("--text the --overlap 3", ["overlap=3", "--window"]),
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
    command_refuses(main, words, capsys, "error", *parts)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("nats", [20, 120, 3000])
def test_columns_stay_apart(capsys, nats):
    """Perplexities a word of an untrained model have any number of digits; what no
    number holds is null in JSON."""
    found = TextScore(-float(nats), 10, 1, 4, 20, 0)
    score_command._print(False, {"input": "a.txt"}, found)
    *figures, name = capsys.readouterr().out.split()
    assert name == "a.txt"
    assert len(figures) == len(score_command.COLUMNS)
    shown = figures[score_command.COLUMNS.index("ppl/word")].replace(",", "")
    assert float(shown) == pytest.approx(found.word_perplexity, rel=1e-3)
    one_word = TextScore(-3000.0, 400, 1, 1, 900, 0)
    score_command._print(True, {}, one_word)
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed["word_perplexity"] is None
    assert printed["perplexity"] == one_word.perplexity

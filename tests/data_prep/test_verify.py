"""verify finds each change of prepared data since they were made."""

import pytest

from .commands import verify


def test_good_folder(word_folder, capsys):
    assert verify([word_folder]) == 0
    out = capsys.readouterr().out
    assert "train: 400 lines" in out and "good" in out


@pytest.mark.parametrize("name", ["train.bin", "valid.idx", "dict.txt"])
def test_any_fault(word_folder, fails, name):
    path = word_folder / name
    whole = path.read_bytes()
    path.unlink()
    fails(verify, [word_folder], path, "no such file", "report.json")
    for wrong in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        path.write_bytes(wrong)
        fails(verify, [word_folder], path, "sha256", "report.json")


@pytest.mark.parametrize("content", [None, '{"files": [', "[]", '{"files": {}}'])
def test_no_report(word_folder, fails, content):
    report = word_folder / "report.json"
    report.unlink()
    if content:
        report.write_text(content)
    fails(verify, [word_folder], report, "report")

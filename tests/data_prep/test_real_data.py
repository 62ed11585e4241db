"""The published files themselves give the published counts."""

import json

import pytest

from data_prep.folders.staging import read_listing
from tests.paths import ROOT

from .commands import glue, text

DATA = ROOT.parent / "shared" / "data"
# examples of train, dev and test, as GLUE publishes them; but of RTE's 2,490 for
# training one is missing in this copy
EXAMPLES = {
    "SST-2": (67_349, 872, 1_821),
    "CoLA": (8_551, 1_043, 1_063),
    "MRPC": (3_668, 408, 1_725),
    "STS-B": (5_749, 1_500, 1_379),
    "RTE": (2_489, 277, 3_000),
}
# words and one end a line, as Merity et al. count them
TOKENS = {"valid": 217_646, "test": 245_569}


def present(path):
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    return path


@pytest.mark.parametrize("task", EXAMPLES)
def test_glue(task, tmp_path, pretraining_data):
    source = present(DATA / "glue" / task).parent
    given = [task, "--from-dir", source, "--data", pretraining_data]
    assert glue([*map(str, given), "--dest", str(tmp_path), "--workers", "1"]) == 0
    report = json.loads((tmp_path / task / "report.json").read_text())
    assert tuple(report["splits"].values()) == EXAMPLES[task]
    assert not any(each["skipped"] for each in report["malformed"].values())


def test_wikitext(tmp_path):
    files = {
        split: present(DATA / "wikitext-103" / f"wiki.{split}.tokens")
        for split in TOKENS
    }
    given = ["--tokenizer", "word", "--train", files["test"], "--valid", files["valid"]]
    given += ["--test", files["test"], "--dest", tmp_path / "d", "--workers", 1]
    assert text([*map(str, given)]) == 0
    splits = read_listing(tmp_path / "d" / "report.json")["splits"]
    assert {split: splits[split]["tokens"] for split in TOKENS} == TOKENS

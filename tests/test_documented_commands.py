"""Every command that a page prints is one that its parser takes."""

import importlib
import re
import shlex

import pytest

from fairseq_transnormer import cli
from fairseq_transnormer.training import launch
from tests.paths import PAGES

PACKAGES = ("fairseq_transnormer", "data_prep", "benchmarks")
# scripts that hand their words on to a command
TRAINING = {"train_alm.sh": ["alm"], "train_blm.sh": ["blm"]}
SCRIPTS = {
    "finetune_glue.sh": ["fairseq_transnormer", "reproduce", "finetune"],
    "generate.sh": ["fairseq_transnormer", "generate"],
    "own_text.sh": ["data_prep", "plan"],
}
ENDS = {"|", ">", ">>", "<", "&", "&&", ";", "2>", "2>&1"}


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def commands(text: str) -> list[list[str]]:
    """The commands of a page's shell blocks, variables replaced."""
    found = []
    for block in blocks("bash", text):
        variables: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            for name, value in variables.items():
                line = line.replace(f"${name}", value)
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";<>|&")
            lexer.whitespace_split = True
            words = list(lexer)
            given = re.fullmatch(r"([A-Z]\w*)=(.*)", words[0], re.S) if words else None
            if given and len(words) == 1:
                variables[given[1]] = given[2]
                continue
            end = next((i for i, w in enumerate(words) if w in ENDS), len(words))
            found.append([w for w in words[:end] if not re.match(r"[A-Z_]+=", w)])
    return found


def checked(words: list[str]) -> bool | None:
    """Whether a command is taken; None where it is none of ours."""
    if any("$" in word or "..." in word for word in words):
        return None  # a loop's, or shortened
    if words[:2] == ["python", "-m"] and words[2] in PACKAGES:
        words = words[2:]
    elif words[:1] == ["bash"] and words[1].removeprefix("scripts/") in SCRIPTS:
        words = [*SCRIPTS[words[1].removeprefix("scripts/")], *words[2:]]
    elif words[:1] == ["bash"] and words[1].removeprefix("scripts/") in TRAINING:
        name = words[1].removeprefix("scripts/")
        words = ["fairseq_transnormer", "train", *TRAINING[name], *words[2:]]
    else:
        return None
    if words[:2] == ["fairseq_transnormer", "train"]:
        launch._parser().parse_intermixed_args(words[2:])
        return True
    main = importlib.import_module(f"{words[0]}.__main__").main
    try:
        return main(words[1:]) == 0
    except SystemExit as end:  # --help
        return end.code == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_taken(page, monkeypatch, tmp_path, capsys):
    parse = cli.parsed
    # the function is not called: its parser has checked the types
    monkeypatch.setattr(cli, "parsed", lambda *a: (parse(*a), lambda: 0)[1])
    monkeypatch.chdir(tmp_path)
    for words in commands(page.read_text(encoding="utf-8")):
        taken = checked(words)
        assert taken in (True, None), (words, capsys.readouterr().err)


def test_a_wrong_command_is_seen(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = "```bash\nT='python -m fairseq_transnormer'\n$T verify --nosuch 1 | cat\n```"
    (words,) = commands(text)
    assert words == ["python", "-m", "fairseq_transnormer", "verify", "--nosuch", "1"]
    assert checked(words) is False

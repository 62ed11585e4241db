"""dict.txt is read as fairseq reads it."""

import pytest
from fairseq.data import Dictionary

from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.checkpoints.vocabulary import Vocabulary
from fairseq_transnormer.data.subword_files import SPECIAL
from tests.messages import refuses

# what str.splitlines cuts at besides the ends of lines of files
BREAKS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_those_of_fairseq(end, tmp_path):
    lines = [f"a{each}b 3" for each in BREAKS] + [f"{each} 2" for each in BREAKS]
    lines += ["blank 1 ", "after 1\x85", "a\xa0c 1", "blank 1 #fairseq:overwrite"]
    path = tmp_path / "dict.txt"
    for last in ("", end):
        path.write_bytes((end.join(lines) + last).encode())
        symbols = Vocabulary.read(path).symbols
        assert symbols == Dictionary.load(str(path)).symbols
        assert len(symbols) == 4 + len(lines)


def test_special_symbols_that_dict_txt_repeats(tmp_path):
    """fairseq takes them from its front, and words from where they stand last."""
    flag = "#fairseq:overwrite"
    lines = [f"{each} 0 {flag}" for each in ("<s>", "</s>", "<pad>", "<unk>")]
    lines += ["a 3", "<mask> 1", f"a 2 {flag}", f"<mask> 1 {flag}"]
    path = tmp_path / "dict.txt"
    path.write_text("\n".join(lines))
    found, expected = Vocabulary.read(path), Dictionary.load(str(path))
    assert [found.numbers[each] for each in SPECIAL] == [0, 1, 2, 3]
    assert found.encode("a b a") == [10, 3, 10]
    for word in ("a", "<mask>"):
        assert found.numbers[word] == expected.index(word)


@pytest.mark.parametrize(
    ("symbols", "name"),
    [
        (["\u2581the", "r"], "sentencepiece.bpe.model"),
        (map(str, range(50_257)), "encoder.json"),
    ],
)
def test_no_text_is_cut_into_units_whose_files_are_missing(symbols, name):
    vocabulary = Vocabulary([*SPECIAL, *symbols])
    with refuses(CheckpointError, name):
        vocabulary.encode("the river")
    assert Vocabulary([*SPECIAL, *map(str, range(10_000))]).encode("1 2") == [5, 6]


@pytest.mark.parametrize("word", ["<s>", "<pad>", "</s>"])
def test_a_control_token_is_no_word(word):
    with refuses(ValueError, repr(word)):
        Vocabulary([*SPECIAL, "a"]).encode(f"a {word}")
    assert Vocabulary([*SPECIAL, "a"]).encode("a <unk> <mask>") == [4, 3, 3]

"""Encoders and subword units are fairseq's for any text, in several processes, too."""

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq.tokenizer import tokenize_line
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.folders.binary_folder import gpt2_dictionary, load_dictionary
from data_prep.folders.encoders import Gpt2Encoder, WordEncoder, count_words
from data_prep.folders.parallel import BATCH_LINES, map_batches
from data_prep.labelled_texts.subword import Pretrained, find_subword
from fairseq_transnormer.checkpoints.identity import dictionary_sha256
from fairseq_transnormer.data.fingerprints import file_sha256
from tests.messages import refuses

any_line = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))


@pytest.fixture(scope="module")
def fairseqs_gpt2(gpt2_dir):
    return get_encoder(str(gpt2_dir / "encoder.json"), str(gpt2_dir / "vocab.bpe"))


@pytest.fixture(scope="module")
def gpt2(gpt2_dir):
    return Gpt2Encoder(gpt2_dir, gpt2_dictionary().indices)


@given(line=any_line)
@example(line=" = Valkyria Chronicles III = ")
@example(line="it's  they'll   don't\t\tWE'VE 1,234.5 <|endoftext|> \u3000 ﷽ 😀")
@example(line="")
@settings(max_examples=80, deadline=None)
def test_gpt2_equals_fairseqs(gpt2, fairseqs_gpt2, line):
    (ids,) = gpt2([f"{line}\n"])
    assert (ids[:-1] - 4).tolist() == fairseqs_gpt2.encode(line.strip())
    assert ids[-1] == 2
    assert fairseqs_gpt2.decode((ids[:-1] - 4).tolist()) == line.strip()


@given(line=any_line)
@example(line="\x1c\x1d\x85 a\u2028b\u3000c\xa0 \x0b d")
@settings(max_examples=80, deadline=None)
def test_words_are_split_as_fairseq_does(line):
    dictionary = Dictionary()
    expected = dictionary.encode_line(line).tolist()
    (ids,) = WordEncoder(dictionary.indices)([f"{line}\n"])
    assert ids.tolist() == expected
    assert list(count_words([line]).elements()) == sorted(
        tokenize_line(line), key=tokenize_line(line).index
    )


def test_processes_keep_the_order():
    lines = [f"{number} {number % 7}" for number in range(2 * BATCH_LINES + 3)]
    alone = list(map_batches(count_words, iter(lines), 1))
    assert list(map_batches(count_words, iter(lines), 2)) == alone
    assert [each.total() for each in alone] == [2 * BATCH_LINES] * 2 + [6]
    assert list(map_batches(count_words, [], 2)) == []


def test_an_error_in_the_text_reaches_the_caller():
    def lines():
        yield from ["line"] * (2 * BATCH_LINES)
        raise ValueError("not UTF-8")

    with pytest.raises(ValueError, match="not UTF-8"):
        list(map_batches(count_words, lines(), 2))


def found(**given):
    return find_subword(Pretrained(**given))


def test_sentencepiece_beside_the_data(pretraining_data):
    subword = found(data=pretraining_data)
    assert (subword.kind, subword.max_positions) == ("sentencepiece", 512)
    ids = subword.encoder(["the first time"])[0]
    string = subword.dictionary.string(ids, bpe_symbol="sentencepiece")
    assert string == "the first time"
    assert set(subword.record()["sha256"]) == {"dict.txt", "sentencepiece.bpe.model"}


def test_gpt2_ids_in_the_order_of_another_dictionary(gpt2, gpt2_data, tmp_path):
    lines = (gpt2_data / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join(lines[::-1]) + "\n")
    subword = found(data=tmp_path, bpe_dir=gpt2_data)
    dictionary = load_dictionary(tmp_path / "dict.txt")
    in_order = gpt2([" Some words"])[0]
    symbols = [str(token - 4) for token in in_order[:-1]]
    expected = [*(dictionary.index(symbol) for symbol in symbols), dictionary.eos()]
    assert subword.encoder([" Some words"])[0].tolist() == expected
    assert expected != in_order.tolist()


def test_mistakes(pretraining_data, gpt2_data, word_folder, tmp_path):
    def refused(*parts, **given):
        with refuses(ValueError, *parts, alone=True):
            found(**given)

    refused("--checkpoint", "--data")
    files = ("sentencepiece.bpe.model", "encoder.json", "vocab.bpe", "--bpe-dir")
    refused(word_folder, *files, data=word_folder)
    parts = [word_folder / "dict.txt", "agree", "entries"]
    refused(*parts, data=word_folder, bpe_dir=pretraining_data)
    parts = [pretraining_data / "dict.txt", "agree", "encoder.json", "entries"]
    refused(*parts, data=pretraining_data, bpe_dir=gpt2_data)
    cut = tmp_path / "sentencepiece.bpe.model"
    cut.write_bytes((pretraining_data / cut.name).read_bytes()[:-9])
    parts = [cut, "not a sentencepiece model"]
    refused(*parts, data=pretraining_data, bpe_dir=tmp_path)
    none, broken = tmp_path / "none.pt", tmp_path / "broken.pt"
    refused(none, "no such", checkpoint=none)
    broken.write_bytes(b"PK\x03\x04")
    refused(broken, "fairseq checkpoint", checkpoint=broken)


def save(path, data, **said):
    """A checkpoint of a model that was trained on a folder, without the weights."""
    rows = len(load_dictionary(data / "dict.txt")) + 1
    task = {"_name": "masked_lm", "data": str(data)}
    state = {
        "cfg": {"model": {"_name": "x", "max_positions": 64}, "task": task},
        "model": {"encoder.embed_tokens.weight": torch.zeros(rows, 2)},
        "extra_state": said,
    }
    torch.save(state, path)
    return path


def test_units_that_are_not_those_of_the_pretraining(pretraining_data, tmp_path):
    units, path = pretraining_data / "sentencepiece.bpe.model", tmp_path / "model.pt"
    save(path, pretraining_data, subword_files_sha256={units.name: "0" * 64})
    with refuses(ValueError, units, path, "0" * 64, alone=True):
        found(checkpoint=path)
    known = {units.name: file_sha256(units)}
    save(path, pretraining_data, subword_files_sha256=known)
    assert found(checkpoint=path).max_positions == 64


def test_a_dictionary_of_equal_size(pretraining_data, tmp_path):
    words = load_dictionary(pretraining_data / "dict.txt")
    known = dictionary_sha256(words.symbols)
    path = save(tmp_path / "model.pt", pretraining_data, dictionary_sha256=known)
    assert found(checkpoint=path, data=pretraining_data).kind == "sentencepiece"
    lines = (pretraining_data / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join(lines[::-1]) + "\n")
    with refuses(ValueError, path, "dictionary_sha256"):
        found(checkpoint=path, data=tmp_path, bpe_dir=pretraining_data)

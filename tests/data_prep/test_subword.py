"""Subword units are those of the pre-training data, or there is a message."""

import argparse

import pytest

from data_prep.encoders import Gpt2Encoder
from data_prep.errors import InputError
from data_prep.fairseq_format import load_dictionary
from data_prep.subword import find_subword


def found(**given):
    options = {"checkpoint": None, "data": None, "bpe_dir": None, "max_positions": None}
    return find_subword(argparse.Namespace(**options | given))


def test_sentencepiece_beside_the_data(pretraining_data):
    subword = found(data=pretraining_data)
    assert (subword.kind, subword.max_positions) == ("sentencepiece", 512)
    ids = subword.encoder(["the first time"])[0]
    string = subword.dictionary.string(ids, bpe_symbol="sentencepiece")
    assert string == "the first time"
    assert set(subword.record()["sha256"]) == {"dict.txt", "sentencepiece.bpe.model"}


def test_gpt2_ids_in_the_order_of_another_dictionary(gpt2_data, tmp_path):
    lines = (gpt2_data / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join(lines[::-1]) + "\n")
    subword = found(data=tmp_path, bpe_dir=gpt2_data)
    dictionary = load_dictionary(tmp_path / "dict.txt")
    in_order = Gpt2Encoder(gpt2_data)([" Some words"])[0]
    symbols = [str(token - 4) for token in in_order[:-1]]
    expected = [*(dictionary.index(symbol) for symbol in symbols), dictionary.eos()]
    assert subword.encoder([" Some words"])[0].tolist() == expected
    assert expected != in_order.tolist()


def test_mistakes(pretraining_data, gpt2_data, word_folder, tmp_path):
    def refused(*parts, **given):
        with pytest.raises(InputError) as error:
            found(**given)
        for part in parts:
            assert str(part) in str(error.value)

    refused("--checkpoint FILE or --data DIR")
    refused(tmp_path / "dict.txt", "no such file", data=tmp_path)
    refused(word_folder, "neither sentencepiece.bpe.model nor", data=word_folder)
    refused("does not agree", "a piece of", data=word_folder, bpe_dir=pretraining_data)
    parts = ["does not agree", "an id of GPT-2", pretraining_data / "dict.txt"]
    refused(*parts, data=pretraining_data, bpe_dir=gpt2_data)
    refused("--max-positions 5", "from 8", data=pretraining_data, max_positions=5)
    refused("no such checkpoint", checkpoint=tmp_path / "none.pt")
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04")
    refused("not a fairseq checkpoint", checkpoint=tmp_path / "broken.pt")

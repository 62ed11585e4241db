"""Subword units are those of the pre-training data, or there is a message."""

import argparse

import torch

from data_prep.folders.encoders import Gpt2Encoder
from data_prep.folders.errors import InputError
from data_prep.folders.fairseq_format import load_dictionary
from data_prep.labelled_texts.subword import find_subword
from fairseq_transnormer.checkpoints.identity import dictionary_sha256
from fairseq_transnormer.data.fingerprints import file_sha256
from tests.messages import refuses


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
        with refuses(InputError, *parts, alone=True):
            found(**given)

    refused("--checkpoint", "--data")
    refused(tmp_path / "dict.txt", "no such", data=tmp_path)
    files = ("sentencepiece.bpe.model", "encoder.json", "vocab.bpe", "--bpe-dir")
    refused(word_folder, *files, data=word_folder)
    parts = [word_folder / "dict.txt", "agree", "piece", "entries"]
    refused(*parts, data=word_folder, bpe_dir=pretraining_data)
    parts = [pretraining_data / "dict.txt", "agree", "GPT-2", "entries"]
    refused(*parts, data=pretraining_data, bpe_dir=gpt2_data)
    refused("--max-positions 5", "from 8", data=pretraining_data, max_positions=5)
    none, broken = tmp_path / "none.pt", tmp_path / "broken.pt"
    refused(none, "no such", checkpoint=none)
    broken.write_bytes(b"PK\x03\x04")
    refused(broken, "fairseq checkpoint", checkpoint=broken)


def test_units_that_are_not_those_of_the_pretraining(pretraining_data, tmp_path):
    rows = len(load_dictionary(pretraining_data / "dict.txt")) + 1
    name = "sentencepiece.bpe.model"
    state = {
        "cfg": {
            "model": {"_name": "x", "max_positions": 64},
            "task": {"_name": "masked_lm", "data": str(pretraining_data)},
        },
        "model": {"encoder.embed_tokens.weight": torch.zeros(rows, 2)},
        "extra_state": {"subword_files_sha256": {name: "0" * 64}},
    }
    checkpoint = tmp_path / "model.pt"
    torch.save(state, checkpoint)
    with refuses(InputError, pretraining_data / name, checkpoint, "0" * 64, alone=True):
        found(checkpoint=checkpoint)
    known = file_sha256(pretraining_data / name)
    state["extra_state"]["subword_files_sha256"][name] = known
    torch.save(state, checkpoint)
    assert found(checkpoint=checkpoint).max_positions == 64


def test_a_dictionary_of_equal_size(pretraining_data, tmp_path):
    words = load_dictionary(pretraining_data / "dict.txt")
    history = {"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 1}
    state = {
        "cfg": {"model": {"max_positions": 512}, "task": {"_name": "masked_lm"}},
        "model": {"encoder.embed_tokens.weight": torch.zeros(len(words) + 1, 1)},
        "optimizer_history": [history],
        "extra_state": {
            "train_iterator": {"epoch": 1},
            "dictionary_sha256": dictionary_sha256(words.symbols),
        },
    }
    path = tmp_path / "model.pt"
    torch.save(state, path)
    subword = found(checkpoint=path, data=pretraining_data)
    assert subword.kind == "sentencepiece"
    lines = (pretraining_data / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join(lines[::-1]) + "\n")
    with refuses(InputError, path, "dictionary_sha256", "--data"):
        found(checkpoint=path, data=tmp_path, bpe_dir=pretraining_data)

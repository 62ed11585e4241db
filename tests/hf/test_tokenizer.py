"""The tokenizer cuts text as the data of the training were cut."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import Dictionary, encoders
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.folders.binary_folder import gpt2_dictionary
from data_prep.folders.encoders import Gpt2Encoder, SentencepieceEncoder, WordEncoder
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.subword_files import (
    DICTIONARY,
    SENTENCEPIECE_MODEL,
    decode_byte_pieces,
)
from fairseq_transnormer.inference import TextClassifier
from tests.binary_data import write_binary_data
from tests.inference.problems import write_problem
from tests.messages import assert_names, refuses
from tests.zoo import CAUSAL, MASKED, fine_tuning, save

from .loading import tokenizer_of

any_line = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))
ODD = "\x1c\x1d\x85 the\u2028river \u3000an\xa0 \x0b old king ﷽ 😀 it's 1,234.5 € Ａ"
SPECIAL = "a <s> b</s> </s> <unk> c"


@pytest.fixture(scope="session")
def gpt2(zoo, gpt2_dir):
    """The data of an encoder with GPT-2's units, its encoder, and the tokenizer."""
    _, checkpoint, folder = zoo.untrained["gpt2"]
    encode = Gpt2Encoder(gpt2_dir, gpt2_dictionary().indices)
    return checkpoint.parent / "data", encode, tokenizer_of(folder)


@given(line=any_line)
@example(line=ODD)
@example(line=SPECIAL)
@example(line="")
@settings(max_examples=40)
def test_causal_equals_the_data(texts, line):
    data = texts.hub.task.args.data
    dictionary = Dictionary.load(f"{data}/dict.txt")
    encode = WordEncoder(dictionary.indices)
    if units := texts.tokenizer.vocabulary.units:
        encode = SentencepieceEncoder(units[0], dictionary.indices)
    (expected,) = encode([line])
    found = texts.tokenizer(line)["input_ids"]
    # a start for an end
    assert found == [2, *expected[:-1].tolist()]
    symbols = [dictionary[token] for token in expected[:-1]]
    text = decode_byte_pieces(texts.hub.decode(expected[:-1]))
    assert texts.tokenizer.decode(found, skip_special_tokens=True) == text
    assert texts.tokenizer.convert_ids_to_tokens(found[1:]) == symbols


@given(line=any_line)
@example(line=ODD)
@example(line=SPECIAL)
@example(line="it's  they'll   don't\t\tWE'VE 1,234.5 <|endoftext|> madeupword0000")
@settings(max_examples=40)
def test_gpt2s_units_equal_the_data(gpt2, line):
    _, encode, tokenizer = gpt2
    (expected,) = encode([line])
    found = tokenizer(line)["input_ids"]
    assert found == [0, *expected.tolist()]
    assert tokenizer.decode(found, skip_special_tokens=True) == line.strip()
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) == found[1:-1]


def test_masks_are_those_of_fairseqs_hub(gpt2):
    """As RobertaHubInterface.fill_mask has them: a space in front belongs to them."""
    folder, _, tokenizer = gpt2
    bpe = encoders.gpt2_bpe.GPT2BPE(
        encoders.gpt2_bpe.GPT2BPEConfig(
            gpt2_encoder_json=str(folder / "encoder.json"),
            gpt2_vocab_bpe=str(folder / "vocab.bpe"),
        )
    )
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    mask = dictionary.add_symbol("<mask>")
    for text in (
        "The <mask> river <mask>, it's <mask>",
        "a<mask>b",
        "<mask>",
        "no mask in it",
    ):
        spans = [bpe.encode(span.rstrip()) for span in text.split("<mask>")]
        expected = dictionary.encode_line(
            "<s> " + " <mask> ".join(spans), append_eos=True, add_if_not_exist=False
        )
        assert tokenizer(text)["input_ids"] == expected.tolist()
    assert tokenizer.mask_token_id == mask == len(dictionary) - 1


def test_units_of_a_problem_are_exported(pieces, tmp_path):
    """... which stand beside the folder of its texts; a text has the same tokens."""
    data = tmp_path / "data"
    units = Path(pieces.data) / SENTENCEPIECE_MODEL
    words = Dictionary.load(str(Path(pieces.data) / DICTIONARY))
    write_problem(data, words=words, max_positions=24)
    shutil.copy(units, data)
    checkpoint, _ = save(tmp_path / "checkpoint.pt", data, *fine_tuning())
    encode = TextClassifier.from_checkpoint(checkpoint, device="cpu").encode
    for name, folder in (("of_training", None), ("of_data", data)):
        assert not export_checkpoint(checkpoint, tmp_path / name, folder).notes
        tokenizer = tokenizer_of(tmp_path / name)
        for text in ("the river is old .", "an old king\nleft", "a\tb ", "the " * 40):
            assert tokenizer(text, truncation=True)["input_ids"] == encode(text)
            assert len(set(encode(text))) > 3
    # without them tokens can be had, and no text
    (data / SENTENCEPIECE_MODEL).unlink()
    (note,) = export_checkpoint(checkpoint, tmp_path / "bare").notes
    assert_names(note, SENTENCEPIECE_MODEL, data)
    with refuses(CheckpointError, SENTENCEPIECE_MODEL):
        tokenizer_of(tmp_path / "bare")("the river")


@pytest.mark.parametrize("most", [8, 9, 12, 13, 30])
def test_pairs_and_what_is_cut(most, exports):
    """As a classifier's texts are encoded."""
    folder = exports["regression"].folder
    tokenizer, trained = tokenizer_of(folder), load(folder)
    manifest = replace(trained.manifest, sequence_length=most, texts=None)
    encode = TextClassifier(replace(trained, manifest=manifest)).encode
    short, long = "w1 w2", " ".join(f"w{i % 40}" for i in range(20))
    more = {"truncation": True, "max_length": most}
    for pair in ((short, short), (short, long), (long, short), (long, long)):
        assert tokenizer(*pair, **more)["input_ids"] == encode(pair)
    for text in (short, long):
        assert tokenizer(text, **more)["input_ids"] == encode(text)


def test_a_text_and_what_continues_it(texts):
    """Texts of parts are parts of the text."""
    prompt, tokenizer = "the river", texts.tokenizer
    found = texts.generator.generate(prompt, max_new_tokens=12)
    start = len(tokenizer(prompt)["input_ids"]) - 1
    rest = tokenizer.decode(found.tokens[start:], skip_special_tokens=True)
    assert rest.startswith(" ") and prompt + rest == found.text
    tokens = [1, 1, *tokenizer(prompt)["input_ids"], 2, 1]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == prompt
    assert "<pad>" in tokenizer.decode(tokens)
    assert tokenizer.decode([2]) == "</s>" and tokenizer.decode([]) == ""


def test_batches_are_padded(texts, exports):
    tokenizer = texts.tokenizer
    batch = tokenizer(["the river", "it"], padding=True, return_tensors="pt")
    rows = batch["input_ids"][batch["attention_mask"].bool()]
    alone = [tokenizer(text)["input_ids"] for text in ("the river", "it")]
    assert rows.tolist() == [*alone[0], *alone[1]]
    # pads stand in front of what is continued, and after what is only read
    assert batch["attention_mask"][1, 0] == 0 and batch["attention_mask"][1, -1] == 1
    encoder = tokenizer_of(exports["classifier"].folder)
    batch = encoder(["w1 w2", "w3"], padding=True, return_tensors="np")
    assert np.array_equal(batch["attention_mask"], [[1, 1, 1, 1], [1, 1, 1, 0]])
    assert encoder.model_max_length == 512
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert encoder.get_special_tokens_mask([5, 3], [6]) == [1, 0, 0, 1, 1, 0, 1]


def test_special_symbols_that_dict_txt_repeats(tmp_path):
    """An export says 0 to 3 for them, as fairseq trained the model."""
    data, flag = tmp_path / "data", "#fairseq:overwrite"
    lines = [f"w{i} w{i + 1}" for i in range(9)]
    words = Dictionary()
    for i in range(10):
        words.add_symbol(f"w{i}")
    write_binary_data(data, words, {"train": lines})
    specials = [f"{each} 0 {flag}" for each in ("<s>", "<pad>", "</s>", "<unk>")]
    text = (data / "dict.txt").read_text()
    (data / "dict.txt").write_text("\n".join([*specials, text]))
    causal = ("--task", "language_modeling", "--arch", CAUSAL[1])
    for arguments, expected in ((causal, [2, 9, 3, 8]), (MASKED, [0, 9, 3, 8, 2])):
        checkpoint, _ = save(tmp_path / "x.pt", data, *arguments)
        export_checkpoint(checkpoint, tmp_path / arguments[1])
        tokenizer = tokenizer_of(tmp_path / arguments[1])
        assert tokenizer("w1 new w0")["input_ids"] == expected
        found = tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id
        assert found == (2, 1, 3)


def test_saved_and_loaded_again(texts, gpt2, hf, tmp_path):
    unbegun = tokenizer_of(texts.folder, add_bos_token=False)
    named = {"causal": texts.tokenizer, "gpt2": gpt2[2], "unbegun": unbegun}
    for name, tokenizer in named.items():
        tokenizer.save_pretrained(tmp_path / name)
        again = hf.TransNormerTokenizer.from_pretrained(tmp_path / name)
        for text in (ODD, SPECIAL, "the river <mask> it"):
            assert again(text) == tokenizer(text)
            tokens = tokenizer(text)["input_ids"]
            assert again.decode(tokens) == tokenizer.decode(tokens)
        assert again.padding_side == tokenizer.padding_side
        assert again.special_tokens_map == tokenizer.special_tokens_map

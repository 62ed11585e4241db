"""Text in pieces is the text at once, and what tokens spell."""

import threading
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq_transnormer.generation.text import Detokenizer, TextPieces

from fairseq_transnormer.generation import GenerationError
from tests.messages import refuses

# options, and a prompt in words and in pieces
CASES = [
    ({}, "  an old xyzzy king ", "an old £ king €"),
    ({}, "", "the river"),
    ({"lines": 3}, "the river", ""),
    ({"top_p": 0.9, "seed": 2}, "", "an old £ king €"),
    ({"top_k": 6, "seed": 2, "lines": 2, "temperature": 1.3}, "the river", "the river"),
]


@pytest.mark.parametrize(("options", "prompt", "other"), CASES)
def test_the_same_text(t2, pieces, options, prompt, other):
    found = list(t2.generator.stream(prompt, max_new_tokens=12, **options))
    text = t2.generator.generate(prompt, max_new_tokens=12, **options).text
    assert "".join(found) == text
    # a piece a word, the prompt being one
    new_words = len(text.split()) - len(prompt.split())
    assert len([each for each in found if each != "\n"]) == new_words + bool(prompt)
    found = list(pieces.generator.stream(other, max_new_tokens=20, **options))
    text = pieces.generator.generate(other, max_new_tokens=20, **options).text
    assert "".join(found) == text
    assert text.startswith(other)
    assert "<0x" not in text


def test_characters_of_several_bytes_come_whole(pieces):
    tokens = pieces.hub.encode("it € a")[:-1].tolist()
    spelled = pieces.hub.string(tokens).split()
    assert "<0xE2>" in spelled
    stream = TextPieces(pieces.generator.detokenizer)
    found = [stream.add([token]) for token in tokens]
    assert "".join(found) == "it € a"
    at = spelled.index("<0xE2>")
    assert found[at : at + 3] == ["", "", " €"]


def test_bytes_that_are_no_character(pieces):
    tokens = pieces.hub.encode("it")[:-1].tolist()
    tokens += [pieces.hub.tgt_dict.index(x) for x in ("<0xE2>", "<0x82>")]
    stream = TextPieces(pieces.generator.detokenizer)
    assert stream.add(tokens) == "it"
    assert stream.rest() == "\N{REPLACEMENT CHARACTER}"


def test_pieces_come_while_the_model_runs(t2, monkeypatch):
    """The first ones are there before the model has been asked for the last."""
    model = t2.generator.model.decoder.model
    features, may_go_on = model.features, threading.Event()
    calls = []

    def waiting(*args, **kwargs):
        calls.append(None)
        if len(calls) == 4:
            assert may_go_on.wait(60)
        return features(*args, **kwargs)

    monkeypatch.setattr(model, "features", waiting)
    stream = t2.generator.stream("the river", max_new_tokens=9, min_new_tokens=9)
    early = [next(stream) for _ in range(4)]
    assert len(calls) <= 4
    may_go_on.set()
    assert len(early + list(stream)) == 1 + 9


def test_an_abandoned_stream_stops(t2):
    stream = t2.generator.stream("the river", max_new_tokens=5000, min_new_tokens=5000)
    next(stream)
    stream.close()
    assert not [each for each in threading.enumerate() if each.name == "generation"]


def test_an_error_reaches_the_reader(t2, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(t2.generator.model.decoder.model, "features", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(t2.generator.stream("the river"))


def test_beams_cannot_be_streamed(t2):
    with refuses(GenerationError, "beam=2", "stream", 1):
        t2.generator.stream("the river", beam=2)


def test_entries_that_fill_up_a_dictionary(gpt2_dir):
    """They are no numbers of GPT-2's units, and an untrained model draws them."""
    encoder, merges = (str(gpt2_dir / name) for name in ("encoder.json", "vocab.bpe"))
    config = GPT2BPEConfig(gpt2_encoder_json=encoder, gpt2_vocab_bpe=merges)
    bpe = GPT2BPE(config)
    hub = SimpleNamespace(
        tgt_dict=Dictionary(), bpe=bpe, remove_bpe=bpe.decode, detokenize=str
    )
    text = Detokenizer(hub).text
    river = bpe.encode("the river").split()
    assert text(river) == "the river"
    assert text([]) == ""
    found = text([*river, "madeupword0001", *bpe.encode(" of").split()])
    assert found == "the rivermadeupword0001 of"


@pytest.mark.parametrize("symbols", [["the", "madeupword0001", "of"], []])
def test_words_are_joined_by_spaces(symbols):
    hub = SimpleNamespace(
        tgt_dict=Dictionary(), bpe=None, remove_bpe=str, detokenize=str
    )
    assert Detokenizer(hub).text(symbols) == " ".join(symbols)


def test_pieces_are_as_fairseq_spells_them():
    """Spaces around what fills up a dictionary are kept."""
    bpe = SentencepieceBPE.decode
    hub = SimpleNamespace(
        tgt_dict=Dictionary(),
        bpe=object(),
        remove_bpe=lambda line: bpe(None, line),
        detokenize=str,
    )
    symbols = ["\u2581the", "madeupword0001", "\u2581of"]
    assert Detokenizer(hub).text(symbols) == "themadeupword0001 of"

"""What tokens spell."""

from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from fairseq_transnormer.generation.text import Detokenizer


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

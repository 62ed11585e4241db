"""``--mask-whole-words`` masks all pieces of a word, or none."""

import pytest
import sentencepiece
from fairseq import tasks
from fairseq.tasks.masked_lm import MaskedLMConfig
from omegaconf import OmegaConf

from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL
from tests.binary_data import dictionary_of, numbered_words, write_binary_data
from tests.messages import refuses

WORDS = ("river", "house", "lantern", "winter", "garden", "mountain")
TEXT = [" ".join(WORDS[(i + k) % 6] for k in range(5)) for i in range(6)]


def targets(folder):
    """Symbols and whether they are masked, of each line."""
    given = {"data": str(folder), "mask_whole_words": True, "mask_prob": 0.4, "seed": 1}
    given |= {"sample_break_mode": "eos", "tokens_per_sample": 64}
    given |= {"random_token_prob": 0.0}
    config = OmegaConf.merge(OmegaConf.structured(MaskedLMConfig), given)
    OmegaConf.set_struct(config, False)
    config._name = "masked_lm"
    task = tasks.setup_task(config)
    task.load_dataset("train")
    dataset, dictionary = task.dataset("train"), task.source_dictionary
    for at in range(len(dataset)):
        target, source = dataset[at]["target"], dataset[at]["net_input.src_tokens"]
        masked = target.ne(dictionary.pad())
        tokens = target.where(masked, source)
        yield [dictionary[int(token)] for token in tokens], masked.tolist()


def sentencepiece_data(folder):
    (folder / "text").write_text("\n".join(TEXT))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / SENTENCEPIECE_MODEL.removesuffix(".model")),
        vocab_size=24,
        minloglevel=2,
    )
    units = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / SENTENCEPIECE_MODEL)
    )
    lines = [" ".join(units.encode(line, out_type=str)) for line in TEXT]
    symbols = dictionary_of(sorted(set(" ".join(lines).split())))
    return write_binary_data(folder, symbols, {"train": lines})


def test_the_pieces_of_a_word_are_masked_together(tmp_path):
    found = list(targets(sentencepiece_data(tmp_path)))
    continued = 0
    for symbols, masked in found:
        for before, (symbol, here) in enumerate(
            zip(symbols[1:], masked[1:], strict=True)
        ):
            if not symbol.startswith(("\u2581", "<")) and symbol != "</s>":
                continued += here
                assert here == masked[before]
    assert continued
    assert not all(all(masked) for _, masked in found)


def test_words_are_their_own_units(tmp_path):
    lines = ["w0 w1 w2 w3 w4 w5 w6 w7"] * 4
    write_binary_data(tmp_path, numbered_words(8), {"train": lines})
    assert any(any(masked) for _, masked in targets(tmp_path))


@pytest.mark.parametrize("unit", ["##er", "riv@@"])
def test_units_of_other_kinds_are_refused(tmp_path, unit):
    symbols = dictionary_of(["river", unit])
    write_binary_data(tmp_path, symbols, {"train": [f"river {unit}"]})
    with refuses(ValueError, "mask_whole_words", unit, "sentencepiece"):
        list(targets(tmp_path))


def test_units_without_their_files_are_refused(tmp_path):
    (sentencepiece_data(tmp_path) / SENTENCEPIECE_MODEL).unlink()
    with refuses(ValueError, "mask_whole_words", tmp_path, "sentencepiece"):
        list(targets(tmp_path))

"""Encoders equal fairseq's own for any text, and work alike in several processes."""

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq.tokenizer import tokenize_line
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.folders.encoders import Gpt2Encoder, WordEncoder, count_words
from data_prep.folders.errors import InputError
from data_prep.folders.parallel import BATCH_LINES, map_batches
from tests.messages import refuses

from .dying_worker import die

any_line = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))


@pytest.fixture(scope="module")
def fairseqs_gpt2(gpt2_dir):
    return get_encoder(str(gpt2_dir / "encoder.json"), str(gpt2_dir / "vocab.bpe"))


@pytest.fixture(scope="module")
def gpt2(gpt2_dir):
    return Gpt2Encoder(gpt2_dir)


@given(line=any_line)
@example(line=" = Valkyria Chronicles III = ")
@example(line="it's  they'll   don't\t\tWE'VE 1,234.5 <|endoftext|> \u3000 ﷽ 😀")
@example(line="")
@settings(max_examples=80, deadline=None)
def test_gpt2_equals_fairseqs(gpt2, fairseqs_gpt2, line):
    (ids,) = gpt2([line])
    assert (ids[:-1] - 4).tolist() == fairseqs_gpt2.encode(line.strip())
    assert ids[-1] == 2
    assert fairseqs_gpt2.decode((ids[:-1] - 4).tolist()) == line.strip()


@given(line=any_line)
@example(line="\x1c\x1d\x85 a\u2028b\u3000c\xa0 \x0b d")
@settings(max_examples=80, deadline=None)
def test_words_are_split_as_fairseq_does(line):
    dictionary = Dictionary()
    expected = dictionary.encode_line(line).tolist()
    assert WordEncoder(dictionary.indices)([line])[0].tolist() == expected
    assert list(count_words([line])[1].elements()) == sorted(
        tokenize_line(line), key=tokenize_line(line).index
    )


def test_processes_keep_the_order():
    lines = [f"{number} {number % 7}" for number in range(2 * BATCH_LINES + 3)]
    alone = list(map_batches(count_words, iter(lines), 1))
    assert list(map_batches(count_words, iter(lines), 2)) == alone
    assert [count for count, _ in alone] == [BATCH_LINES] * 2 + [3]
    assert list(map_batches(count_words, [], 2)) == []


def test_a_worker_that_dies_is_told():
    with refuses(InputError, "--workers 2", "died"):
        list(map_batches(die, ["line"] * BATCH_LINES, 2))


def test_an_error_in_the_text_reaches_the_caller():
    def lines():
        yield from ["line"] * (2 * BATCH_LINES)
        raise InputError("not UTF-8")

    with pytest.raises(InputError, match="not UTF-8"):
        list(map_batches(count_words, lines(), 2))

"""Scores are those of fairseq-eval-lm, and of the equations in float64."""

import math

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from data_prep.folders.encoders import Gpt2Encoder
from fairseq_transnormer.scoring import Context, TextScorer
from tests.inference.models import PLUGIN, sentences

# ours -> fairseq's; lines one by one, windows side by side, windows that overlap
SETTINGS = {
    "line": (Context(), ["--sample-break-mode", "eos", "--tokens-per-sample", 60]),
    "windows": (Context(16), ["--tokens-per-sample", 16]),
    "overlap": (
        Context(16, 5),
        ["--tokens-per-sample", 16, "--context-window", 5, "--batch-size", 1],
    ),
}
LINES = sentences(300)[:20]


@pytest.fixture
def text(tmp_path):
    """The file that is the valid split of the models' data."""
    path = tmp_path / "valid.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def fairseqs_loss(path, data, *arguments) -> float:
    """Bits a token by fairseq-eval-lm, not rounded."""
    words = [data, "--task", "language_modeling", "--path", path, *arguments]
    words += ["--gen-subset", "valid", "--num-workers", 0, "--cpu"]
    words += ["--user-dir", PLUGIN, "--no-progress-bar"]
    parser = options.get_eval_lm_parser()
    args = options.parse_args_and_arch(parser, [str(each) for each in words])
    return float(eval_lm.main(convert_namespace_to_omegaconf(args))["loss"])


@pytest.mark.parametrize(
    ("arch", "setting"),
    [
        *(("t1", "line"), ("t1", "overlap"), ("t2", "windows")),
        ("vanilla_transformer_tiny", "overlap"),
        *(("transformer_lm", "line"), ("transformer_lm", "windows")),
    ],
)
def test_sums_are_those_of_fairseq_eval_lm(zoo, text, arch, setting):
    path = zoo.checkpoints[arch]
    context, fairseqs = SETTINGS[setting]
    if context == Context() and arch not in ("t1", "t2"):
        context = None
    scorer = TextScorer.from_checkpoint(path, device="cpu", context=context)
    if setting == "line":
        found = sum(scorer.score(LINES)[1:], scorer.score(LINES)[0])
    else:
        found = scorer.score_file(text)
    expected = fairseqs_loss(path, zoo.data["words"], *fairseqs)
    assert found.tokens == sum(len(line.split()) + 1 for line in LINES)
    bits = -found.log_prob / math.log(2) / found.tokens
    assert bits == pytest.approx(expected, rel=2e-6)
    assert found.perplexity == pytest.approx(2**expected, rel=1e-5)


def naive_log_probs(scorer: TextScorer, lines: list[str]) -> list[float]:
    """All tokens in one pass in float64, after </s>."""
    tokens = sum((scorer.encode(line) for line in lines), [])
    model = scorer.hub.models[0].double()
    inputs = torch.tensor([[scorer.dictionary.eos(), *tokens[:-1]]])
    with torch.no_grad():
        logits = model.decoder.model(inputs)[0]
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    model.float()
    return [
        math.log(row[token]) for row, token in zip(probabilities, tokens, strict=True)
    ]


@pytest.mark.parametrize(
    ("arch", "batch_tokens"), [("t1", 16), ("t1", 8192), ("t2", 40)]
)
def test_a_carried_state_is_the_whole_text(zoo, text, arch, batch_tokens):
    """Also over the ends of blocks and of stretches."""
    scorer = TextScorer.from_checkpoint(
        zoo.checkpoints[arch],
        device="cpu",
        context=Context(),
        batch_tokens=batch_tokens,
    )
    expected = naive_log_probs(scorer, LINES)
    assert len(expected) > 128  # blocks are of 64
    found = scorer.score_file(text, tokens=True)
    assert found.log_prob == pytest.approx(sum(expected), rel=1e-6)
    values = [value for _, value in found.token_log_probs]
    assert values == pytest.approx(expected, abs=1e-4)
    symbols = [symbol for symbol, _ in found.token_log_probs]
    assert symbols == sum(([*line.split(), "</s>"] for line in LINES), [])


@pytest.mark.parametrize(
    ("arch", "context"),
    [
        *(("t2", each) for each in (Context(), None, Context(12, 4))),
        *(("roberta_transnormer_t2_tiny", each) for each in (None, Context(12, 4))),
    ],
)
def test_companions_and_streams_change_nothing(zoo, arch, context):
    """Texts of very different lengths, one of them of several lines, side by side."""
    texts = ["the river", "\n".join(LINES[:5]), "it .", *LINES[7:9], "a\n\nb"]
    path = zoo.checkpoints[arch]
    many, one = (
        TextScorer.from_checkpoint(path, device="cpu", context=context, batch_tokens=n)
        for n in (200, 1)
    )
    together = many.score(texts, tokens=True)
    streamed = list(one.stream(iter(texts), tokens=True))
    for found, alone in zip(together, streamed, strict=True):
        assert found.log_prob == pytest.approx(alone.log_prob, rel=1e-5)
        pairs = zip(found.token_log_probs, alone.token_log_probs, strict=True)
        for (symbol, value), (other, expected) in pairs:
            assert symbol == other
            assert value == pytest.approx(expected, abs=1e-4)
        assert found.tokens == alone.tokens == len(found.token_log_probs)


def naive_pseudo_log_likelihood(
    scorer: TextScorer, tokens: list[int], window: int, overlap: int
) -> float:
    """Each token masked by itself, in float64; ends of lines stay."""
    model, dictionary = scorer.hub.models[0].double(), scorer.dictionary
    total = 0.0
    for start in range(0, len(tokens), window - overlap - 1):
        end = start + window - overlap - 1
        seen = [dictionary.bos(), *tokens[max(0, start - overlap) : end]]
        for place in range(1 + min(start, overlap), len(seen)):
            if seen[place] == dictionary.eos():
                continue
            masked = [*seen]
            masked[place] = dictionary.index("<mask>")
            with torch.no_grad():
                logits = model(torch.tensor([masked]))[0][0, place]
            total += math.log(logits.softmax(-1)[seen[place]])
    model.float()
    return total


@pytest.mark.parametrize(
    ("arch", "context"),
    [
        ("roberta_transnormer_t2_tiny", None),
        ("roberta_transnormer_t2_tiny", Context(11, 4)),
        ("roberta_vanilla_transformer_tiny", Context(11)),
    ],
)
def test_each_token_is_masked_in_turn(zoo, arch, context):
    scorer = TextScorer.from_checkpoint(
        zoo.checkpoints[arch], device="cpu", context=context, batch_tokens=100
    )
    lines = LINES[:4]
    tokens = sum((scorer.encode(line) for line in lines), [])
    window, overlap = (64, 0) if context is None else (context.window, context.overlap)
    expected = naive_pseudo_log_likelihood(scorer, tokens, window, overlap)
    found = scorer.score("\n".join(lines))
    assert found.log_prob == pytest.approx(expected, rel=1e-5)
    assert found.tokens == len(tokens) - len(lines)
    assert found.bytes == len("".join(lines).encode())


def test_pieces_spell_their_text(zoo):
    """Of a sentencepiece model with bytes, whose units are fairseq's."""
    scorer = TextScorer.from_checkpoint(zoo.checkpoints["pieces"], device="cpu")
    line = "the  river found nothing €"
    found = scorer.score(line, tokens=True)
    symbols = [symbol for symbol, _ in found.token_log_probs]
    assert symbols == [*scorer.hub.bpe.encode(line).split(), "</s>"]
    assert "<0xE2>" in symbols and not found.unknown
    assert (found.words, found.lines) == (5, 1)
    assert found.bytes == len(line) + 2 + 1  # the euro sign has 3, the end 1
    bits = -found.log_prob / math.log(2)
    assert found.bits_per_byte == pytest.approx(bits / found.bytes)
    assert found.word_perplexity == pytest.approx(math.exp(-found.log_prob / 6))


def test_gpt2_units(zoo, gpt2_dir):
    """As data_prep cuts the text of masked models."""
    scorer = TextScorer.from_checkpoint(zoo.untrained["gpt2"].checkpoint, device="cpu")
    lines = ["The river is long", "  naïve café, 日本  ", ""]
    expected = [ids.tolist() for ids in Gpt2Encoder(gpt2_dir)(lines)]
    assert [scorer.encode(line) for line in lines] == expected
    assert scorer.score(lines[0]).tokens == 4

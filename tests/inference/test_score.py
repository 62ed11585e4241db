"""Scores are those of fairseq-eval-lm, and of the equations in float64."""

import math
import shutil

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data.encoders import sentencepiece_bpe
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from data_prep.folders.binary_folder import gpt2_dictionary
from data_prep.folders.encoders import Gpt2Encoder
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.inference import Context, TextScore, TextScorer
from tests.inference.models import PLUGIN, sentences
from tests.messages import refuses

# ours -> fairseq's; lines one by one, windows side by side, windows that overlap
SETTINGS = {
    "line": (Context(), ["--sample-break-mode", "eos", "--tokens-per-sample", 60]),
    "windows": (Context(16), ["--tokens-per-sample", 16]),
    "overlap": (
        Context(16, 5),
        ["--tokens-per-sample", 16, "--context-window", 5, "--batch-size", 1],
    ),
}
# the valid split of the models' data
LINES = sentences(300)[:20]
EOS = 2


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "valid.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def scorer_of(path, context=None, **options) -> TextScorer:
    return TextScorer.from_checkpoint(path, device="cpu", context=context, **options)


def fairseqs_model(path, data):
    """As fairseq loads it, in float64."""
    overrides = {"data": str(data)}
    (model,), *_ = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    return model.eval().double()


def fairseqs_loss(path, data, *arguments) -> float:
    """Bits a token by fairseq-eval-lm, not rounded."""
    words = [data, "--task", "language_modeling", "--path", path, *arguments]
    words += ["--gen-subset", "valid", "--num-workers", 0, "--cpu"]
    words += ["--user-dir", PLUGIN, "--no-progress-bar"]
    parser = options.get_eval_lm_parser()
    args = options.parse_args_and_arch(parser, [str(each) for each in words])
    return float(eval_lm.main(convert_namespace_to_omegaconf(args))["loss"])


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("t1", "line"), ("t1", "overlap"), ("t2", "windows"), ("pieces", "overlap")),
        ("vanilla_transformer_tiny", "overlap"),
    ],
)
def test_sums_are_those_of_fairseq_eval_lm(zoo, text, name, setting):
    path, (context, fairseqs) = zoo.checkpoints[name], SETTINGS[setting]
    scorer = scorer_of(path, context)
    if setting == "line":
        found = sum(scorer.score(LINES), TextScore())
    else:
        found = scorer.score_file(text)
    data = zoo.data["pieces" if name == "pieces" else "words"]
    expected = fairseqs_loss(path, data, *fairseqs)
    if name != "pieces":
        assert found.tokens == sum(len(line.split()) + 1 for line in LINES)
    bits = -found.log_prob / math.log(2) / found.tokens
    assert bits == pytest.approx(expected, rel=2e-6)
    assert found.perplexity == pytest.approx(2**expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "batch_tokens"), [("t1", 16), ("t1", 8192), ("t2", 40)]
)
def test_a_carried_state_is_the_whole_text(zoo, text, name, batch_tokens):
    """As one pass in float64 has it, also over the ends of blocks and of stretches."""
    path = zoo.checkpoints[name]
    scorer = scorer_of(path, Context(), batch_tokens=batch_tokens)
    tokens = sum((scorer.encode(line) for line in LINES), [])
    with torch.no_grad():
        inputs = torch.tensor([[EOS, *tokens[:-1]]])
        logits = fairseqs_model(path, zoo.data["words"])(inputs)[0][0]
    expected = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
    assert len(expected) > 128  # blocks are of 64
    found = scorer.score_file(text, tokens=True)
    assert found.log_prob == pytest.approx(expected.sum().item(), rel=1e-6)
    symbols, values = zip(*found.token_log_probs, strict=True)
    assert values == pytest.approx(expected.tolist(), abs=1e-4)
    assert [*symbols] == sum(([*line.split(), "</s>"] for line in LINES), [])


@pytest.mark.parametrize(
    ("name", "context"),
    [
        *(("t2", each) for each in (Context(), None, Context(12, 4))),
        *(("roberta_transnormer_t2_tiny", each) for each in (None, Context(12, 4))),
    ],
)
def test_companions_and_streams_change_nothing(zoo, name, context):
    """Texts of very different lengths, one of them of several lines, side by side."""
    texts = ["the river", "\n".join(LINES[:5]), "it .", *LINES[7:9], "a\n\nb"]
    many, one = (
        scorer_of(zoo.checkpoints[name], context, batch_tokens=n) for n in (200, 1)
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


def one_at_a_time(model, mask: int, tokens: list[int], window: int, overlap: int):
    """The sum with each token masked by itself; ends of lines stay."""
    total = 0.0
    for start in range(0, len(tokens), window - overlap - 1):
        end = start + window - overlap - 1
        seen = [0, *tokens[max(0, start - overlap) : end]]
        for place in range(1 + min(start, overlap), len(seen)):
            if seen[place] != EOS:
                masked = torch.tensor([[*seen[:place], mask, *seen[place + 1 :]]])
                with torch.no_grad():
                    logits = model(masked)[0][0, place]
                total += logits.log_softmax(-1)[seen[place]].item()
    return total


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("roberta_transnormer_t2_tiny", None),
        ("roberta_transnormer_t2_tiny", Context(11, 4)),
        ("roberta_vanilla_transformer_tiny", Context(11)),
    ],
)
def test_each_token_is_masked_in_turn(zoo, name, context):
    path, lines = zoo.checkpoints[name], LINES[:4]
    scorer = scorer_of(path, context, batch_tokens=100)
    tokens = sum((scorer.encode(line) for line in lines), [])
    window, overlap = (64, 0) if context is None else (context.window, context.overlap)
    model = fairseqs_model(path, zoo.data["words"])
    mask = model.encoder.dictionary.index("<mask>")
    found = scorer.score("\n".join(lines))
    expected = one_at_a_time(model, mask, tokens, window, overlap)
    assert found.log_prob == pytest.approx(expected, rel=1e-5)
    assert found.tokens == len(tokens) - len(lines)
    assert found.bytes == len("".join(lines).encode())


def test_pieces_spell_their_text(zoo):
    """Of a sentencepiece model with bytes, whose units are fairseq's."""
    config = sentencepiece_bpe.SentencepieceConfig(
        sentencepiece_model=str(zoo.data["pieces"] / "sentencepiece.bpe.model")
    )
    line = "the  river found nothing €"
    found = scorer_of(zoo.checkpoints["pieces"]).score(line, tokens=True)
    symbols = [symbol for symbol, _ in found.token_log_probs]
    pieces = sentencepiece_bpe.SentencepieceBPE(config).encode(line).split()
    assert symbols == [*pieces, "</s>"]
    assert "<0xE2>" in symbols and not found.unknown
    assert (found.words, found.lines) == (5, 1)
    assert found.bytes == len(line) + 2 + 1  # the euro sign has 3, the end 1
    bits = -found.log_prob / math.log(2)
    assert found.bits_per_byte == pytest.approx(bits / found.bytes)
    assert found.word_perplexity == pytest.approx(math.exp(-found.log_prob / 6))


def test_gpt2_units(zoo, gpt2_dir):
    """As data_prep cuts the text of masked models."""
    scorer = scorer_of(zoo.untrained["gpt2"].checkpoint)
    lines = ["The river is long", "  naïve café, 日本  ", ""]
    encode = Gpt2Encoder(gpt2_dir, gpt2_dictionary().indices)
    expected = [ids.tolist() for ids in encode(lines)]
    assert [scorer.encode(line) for line in lines] == expected
    assert scorer.score(lines[0]).tokens == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [("transnormer_t2_tiny", 1100), ("roberta_transnormer_t1_tiny", 20)],
)
def test_an_export_scores_as_its_checkpoint(zoo, name, words):
    """In windows of the training's length, too."""
    texts = ["w1 w2 w3", "w4", "w7 " * words]
    exported, scorer = (
        scorer_of(path)
        for path in (zoo.untrained[name].folder, zoo.untrained[name].checkpoint)
    )
    assert exported.context == scorer.context
    assert exported.score(texts, tokens=True) == scorer.score(texts, tokens=True)


def counted(items, taken: list):
    for item in items:
        taken.append(item)
        yield item


@pytest.mark.parametrize("context", [Context(), Context(16, 8)])
def test_a_long_text_is_never_held(zoo, context, monkeypatch):
    """What is read and not yet scored is bounded, however long the text is; a score
    comes before the next text is read."""
    scorer, taken = scorer_of(zoo.checkpoints["t2"], context, batch_tokens=64), []
    most = scored = 0
    inner = scorer.model.output_loss

    def watched(features, targets):
        nonlocal most, scored
        most = max(most, sum(len(x.split()) + 1 for x in taken) - scored)
        scored += len(targets)
        return inner(features, targets)

    monkeypatch.setattr(scorer.model, "output_loss", watched)
    scores = scorer.stream([counted(sentences(600), taken), counted(["it ."], taken)])
    assert taken == []
    found = next(scores)
    assert len(taken) == 600
    assert found.tokens == sum(len(line.split()) + 1 for line in taken) > 5000
    assert most < 2600
    assert next(scores).tokens == 3


def test_scores_add_up():
    one = TextScore(-3.0, 4, 1, 3, 10, 0, token_log_probs=[("a", -3.0)])
    assert one + TextScore(-5.0, 6, 2, 4, 20, 1) == TextScore(-8.0, 10, 3, 7, 30, 1)
    assert TextScore().perplexity is None and TextScore().bits_per_byte is None
    assert TextScore(-1e6, 2).perplexity == float("inf")


def changed(zoo, tmp_path, change):
    state = torch.load(zoo.checkpoints["t2"], weights_only=False)
    change(state)
    torch.save(state, tmp_path / "changed.pt")
    shutil.copy(zoo.data["words"] / "dict.txt", tmp_path)
    return tmp_path / "changed.pt"


def overflowing(state):
    for name, weight in state["model"].items():
        if "feed_forward" in name and weight.dim() == 2:
            weight.mul_(1e30)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda state: state["cfg"]["task"].update(add_bos_token=True), ["True"]),
        (
            lambda state: state["cfg"]["task"].pop("tokens_per_sample"),
            ["tokens_per_sample", "--window"],
        ),
        (overflowing, ["NaN", "overflow"]),
    ],
)
def test_models_without_a_figure(change, parts, zoo, tmp_path):
    path = changed(zoo, tmp_path, change)
    with refuses(CheckpointError, path, *parts, alone=True):
        scorer_of(path).score("the river")

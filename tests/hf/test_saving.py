"""What save_pretrained writes is loaded again, also from the disk, call by call."""

import copy
import json
import shutil
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.inference import TextClassifier, TextGenerator
from fairseq_transnormer.modules import (
    CausalLanguageModel,
    ClassifierT1Config,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT2Config,
    token_mixers,
)
from tests.messages import refuses
from tests.modules.building import SMALL
from tests.zoo import CAUSAL, ENCODERS, HEADS

from .loading import (
    WITH_HEADS,
    causal,
    classifier,
    config_of,
    masked,
    padded,
    rows,
    tokenizer_of,
)


def same_weights(model, other):
    theirs = other.state_dict()
    assert model.state_dict().keys() == theirs.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_configuration_saved_into_an_export(exports, tmp_path):
    """The folder stays one, with the changed field."""
    folder = shutil.copytree(exports[CAUSAL[0]].folder, tmp_path / "copy")
    config = config_of(folder)
    config.dropout = 0.25
    config.save_pretrained(folder)
    assert load(folder).manifest.config.dropout == 0.25
    same_weights(causal(folder), causal(exports[CAUSAL[0]].folder))


@pytest.mark.parametrize("name", [CAUSAL[0], ENCODERS[1], *HEADS])
def test_saved_and_loaded_again(name, exports, tmp_path):
    folder = exports[name].folder
    model = WITH_HEADS[name](folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01
    model.save_pretrained(tmp_path / "out")
    again = WITH_HEADS[name](tmp_path / "out")
    same_weights(model, again)
    assert again.config.to_dict().keys() == model.config.to_dict().keys()
    assert again.config.manifest == model.config.manifest
    # tied matrices are one, and stand once in the file
    if name not in CAUSAL:
        assert again.model.lm_head.weight is again.model.embed_tokens.weight
    before, after = (load(each).manifest for each in (folder, tmp_path / "out"))
    assert before.kind == after.kind and before.config == after.config
    assert load(tmp_path / "out").vocabulary is None
    tokenizer_of(folder).save_pretrained(tmp_path / "out")
    # copies share no memory: a tied matrix would be saved twice
    copies = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "out", state_dict=copies)
    WITH_HEADS[name](tmp_path / "out")
    loaded = load(tmp_path / "out")
    assert loaded.vocabulary.symbols == load(folder).vocabulary.symbols
    tokens, _ = padded(rows(5, 9), "right")
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(tokens), model(tokens).logits)
    for second in model._tied_weights_keys:
        copies[second] += 1
        with refuses(ValueError, second):
            model.save_pretrained(tmp_path / "out", state_dict=copies)


def test_the_tokenizer_may_be_saved_first(words, tmp_path):
    words.tokenizer.save_pretrained(tmp_path)
    words.model.save_pretrained(tmp_path)
    text = TextGenerator(load(tmp_path)).generate("the river", max_new_tokens=9)
    assert text == words.generator.generate("the river", max_new_tokens=9)


@pytest.mark.parametrize("name", [CAUSAL[1], "classifier"])
def test_half_precision(name, exports, tmp_path):
    model = WITH_HEADS[name](
        exports[name].folder, dtype=torch.bfloat16, device_map="cpu"
    )
    exact = WITH_HEADS[name](exports[name].folder)
    for (key, half), full in zip(
        model.named_parameters(), exact.parameters(), strict=True
    ):
        # angles of positions need more
        wanted = torch.float32 if ".lrpe." in key else torch.bfloat16
        assert half.dtype == wanted and torch.equal(half, full.to(wanted)), key
    model.save_pretrained(tmp_path)
    again = WITH_HEADS[name](tmp_path)
    assert again.dtype == torch.bfloat16
    same_weights(model, again)
    same_weights(model.float(), WITH_HEADS[name](tmp_path, dtype="float32"))
    assert load(tmp_path).model is not None


def test_split_weights(exports, tmp_path):
    model = causal(exports[CAUSAL[0]].folder)
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    same_weights(model, causal(tmp_path))
    same_weights(model.model, load(tmp_path).model)
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    with refuses(CheckpointError, shard, "truncated"):
        causal(tmp_path)


@pytest.mark.parametrize("first", ["10GB", "30KB"])
def test_weights_of_an_earlier_save_are_gone(first, exports, tmp_path):
    """Of one file and of shards transformers would load the first, whichever is new."""
    model = causal(exports[CAUSAL[0]].folder)
    (second,) = {"10GB", "30KB"} - {first}
    model.save_pretrained(tmp_path, max_shard_size=first)
    with torch.no_grad():
        model.model.embed_tokens.weight += 1
    model.save_pretrained(tmp_path, max_shard_size=second)
    same_weights(model, causal(tmp_path))
    one_file = tmp_path / "model.safetensors"
    if first == "30KB":
        load(tmp_path)
        assert not [*tmp_path.glob("model-*")]
        one_file.write_bytes(one_file.read_bytes()[:-1] + b"?")
        with refuses(CheckpointError, one_file, "changed"):
            causal(tmp_path)
    else:
        assert not one_file.exists()
        one_file.write_bytes(b"")
        with refuses(CheckpointError, tmp_path, "model.safetensors.index.json"):
            causal(tmp_path)


@pytest.mark.parametrize("of_main_process", [True, False])
def test_what_writes_no_weights_removes_none(
    of_main_process, exports, transformers, tmp_path, monkeypatch
):
    """As other ranks, and an adapter's save into the folder of its base."""
    model = causal(exports[CAUSAL[0]].folder)
    model.save_pretrained(tmp_path)
    before = (tmp_path / "model.safetensors").stat()
    monkeypatch.setattr(
        transformers.PreTrainedModel,
        "save_pretrained",
        lambda *arguments, **keywords: None,
    )
    model.save_pretrained(tmp_path, is_main_process=of_main_process)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before.st_mtime_ns


def test_units_of_an_earlier_save_are_gone(zoo, tmp_path):
    """They would cut every text into pieces that the dictionary lacks."""
    for texts in (zoo.exported["pieces"], zoo.exported["t1"]):
        texts.model.save_pretrained(tmp_path / "out")
        texts.tokenizer.save_pretrained(tmp_path / "out")
        again = tokenizer_of(tmp_path / "out")
        expected = texts.tokenizer("the river of")["input_ids"]
        assert again("the river of")["input_ids"] == expected
        start = [texts.model.config.bos_token_id]
        loaded = load(tmp_path / "out")
        assert start + loaded.vocabulary.encode("the river of") == expected


def test_a_classifier_without_its_head_is_saved_as_an_encoder(exports, tmp_path):
    """Its labels would belong to a head of random numbers."""
    model = masked(exports["classifier"].folder)
    model.save_pretrained(tmp_path)
    same_weights(model, masked(tmp_path))
    loaded = load(tmp_path)
    assert loaded.manifest.kind == "bidirectional" and loaded.manifest.head is None
    assert "no" not in classifier(tmp_path, num_labels=3).config.id2label.values()
    assert masked(exports["regression"].folder).config.problem_type is None


def test_a_new_head(exports, tmp_path):
    """Fine-tuning begins with fresh weights of the head, and keeps the labels."""
    labels = {0: "bad", 1: "good", 2: "so"}
    model = classifier(exports[ENCODERS[0]].folder, num_labels=3, id2label=labels)
    for parameter in model.classifier.parameters():
        assert 0.02 < parameter.std() < 0.3
    model.save_pretrained(tmp_path)
    again = classifier(tmp_path)
    same_weights(model, again)
    assert again.config.id2label == labels
    found = load(tmp_path).manifest
    assert (found.labels, found.sequence_length) == ([*labels.values()], 512)
    with refuses(CheckpointError, "id2label", "0 to 1", alone=True):
        classifier(tmp_path, id2label={1: "a", 2: "b"}, ignore_mismatched_sizes=True)
    more = classifier(
        tmp_path, id2label={i: str(i) for i in range(5)}, ignore_mismatched_sizes=True
    )
    assert more.classifier.out_proj.out_features == 5
    assert torch.equal(more.classifier.dense.weight, model.classifier.dense.weight)
    more.config.problem_type = "multi_label_classification"
    more.save_pretrained(tmp_path)
    with refuses(CheckpointError, tmp_path, "problem_type", more.config.problem_type):
        TextClassifier(load(tmp_path))
    two = {"num_labels": 2, "ignore_mismatched_sizes": True}
    classifier(tmp_path, problem_type="regression", **two).save_pretrained(tmp_path)
    with refuses(CheckpointError, tmp_path, "2 scores", "one"):
        TextClassifier(load(tmp_path))


def test_the_same_number_of_labels(exports):
    """... which scripts always give, is the same problem, as of others' models."""
    config = config_of(exports["classifier"].folder, num_labels=3)
    assert config.id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert config.label2id == {"no": 0, "yes": 1, "maybe": 2}
    config = config_of(exports["regression"].folder, num_labels=1)
    assert config.problem_type == "regression"


@pytest.mark.parametrize("saved", [False, True], ids=["exported", "saved"])
@pytest.mark.parametrize(("name", "count"), [("classifier", 1), ("regression", 3)])
def test_another_number_of_labels(name, count, saved, exports, tmp_path):
    """... is another problem, a regression or none, also of what transformers saved."""
    folder, settings = exports[name].folder, {"num_labels": count}
    if saved:
        classifier(folder).save_pretrained(tmp_path / "before")
        folder = tmp_path / "before"
    model = classifier(folder, **settings, ignore_mismatched_sizes=True)
    model.save_pretrained(tmp_path / "out")
    labels = torch.tensor([0.5, 2.0] if count == 1 else [0, 2])
    for each in (model, classifier(tmp_path / "out")):
        found = each(torch.tensor([[0, 5, 2], [0, 6, 2]]), labels=labels)
        expected = (
            F.mse_loss(found.logits[:, 0], labels)
            if count == 1
            else F.cross_entropy(found.logits, labels)
        )
        torch.testing.assert_close(found.loss, expected)
    head = load(tmp_path / "out").manifest.head
    assert head.regression == (count == 1) and head.target_scale == 1


def test_a_model_from_scratch(hf, transformers, tmp_path):
    """With the fresh weights of the plain model."""
    plain = LanguageModelT2Config(embed_dim=32, num_heads=2, ffn_dim=40)
    config = hf.TransNormerConfig.of(plain, vocab_size=50)
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config)
    torch.manual_seed(5)
    expected = CausalLanguageModel(plain, 50)
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    model.save_pretrained(tmp_path)
    assert asdict(load(tmp_path).manifest.config) == asdict(plain)
    found = model.generate(torch.tensor([[2, 5, 6]]), max_new_tokens=4)
    assert found.shape[1] <= 7
    config = hf.TransNormerConfig.of(
        EncoderT1Config(attention_types="diag,norm", embed_dim=32, num_heads=2), 50
    )
    for auto in (
        transformers.AutoModelForMaskedLM,
        transformers.AutoModelForSequenceClassification,
    ):
        model = auto.from_config(copy.deepcopy(config))
        assert model(torch.tensor([[5, 6]])).logits.isfinite().all()
    with refuses(CheckpointError, "ClassifierT1Config", "EncoderConfig", alone=True):
        hf.TransNormerConfig.of(ClassifierT1Config(), 50)


@pytest.mark.parametrize(("causal", "tied"), [(True, True), (False, False)])
def test_all_attentions(causal, tied, hf, transformers, tmp_path):
    """Also such as use a matrix twice; and what is trained gets a gradient."""
    kind = LanguageModelT2Config if causal else EncoderT1Config
    names = ",".join(token_mixers(causal=causal))
    plain = kind(
        **SMALL | {"attention_types": names, "untie_output_embedding": not tied}
    )
    whole = (
        transformers.AutoModelForCausalLM
        if causal
        else transformers.AutoModelForMaskedLM
    )
    tokens = torch.randint(4, 40, (2, 24))
    for auto in (
        whole,
        transformers.AutoModel,
        transformers.AutoModelForSequenceClassification,
    )[: 3 - causal]:
        model = auto.from_config(hf.TransNormerConfig.of(plain, 40))
        model.save_pretrained(tmp_path)
        again = auto.from_pretrained(tmp_path)
        same_weights(model, again)
        model = again.train()
        model(tokens)[0].square().sum().backward()
        parameters = dict(model.named_parameters())
        trained = {name for name, p in parameters.items() if p.requires_grad}
        assert trained == {name for name, p in parameters.items() if p.grad is not None}
        assert tied <= ("model.lm_head.weight" not in parameters)


def test_configuration(exports):
    folder = exports[CAUSAL[0]].folder
    config = config_of(folder)
    sizes = (config.embed_dim, config.hidden_size, config.num_hidden_layers)
    assert sizes == (32, 32, 2)
    assert (config.vocab_size, config.pad_token_id, config.eos_token_id) == (44, 1, 2)
    assert config.attention_types == "diag,norm" and config.tie_word_embeddings
    assert copy.deepcopy(config).to_dict() == config.to_dict()
    json.loads(config.to_json_string())
    model = causal(folder, dropout=0.25, backend="torch")
    assert model.model.dropout == 0.25 and model.config.dropout == 0.25
    assert model.model.stack.layers[0].dropout == 0.25
    # the weights have what these say
    for name, value in (("vocab_size", 500), ("tie_word_embeddings", False)):
        with refuses(CheckpointError, f"config.{name}={value}"):
            config_of(folder, **{name: value})


@pytest.mark.parametrize("name", [CAUSAL[0], ENCODERS[1]])
def test_activation_checkpointing(name, exports):
    """Less memory, the same gradients."""
    model = WITH_HEADS[name](exports[name].folder, dropout=0.0, attention_dropout=0.0)
    model.train()
    (row,) = rows(12)
    gradients = {}
    for enabled in (False, True):
        if enabled:
            model.activation_checkpointing_enable()
        assert model.is_activation_checkpointing == enabled
        model.zero_grad()
        model(row[None], labels=row[None]).loss.backward()
        gradients[enabled] = {
            key: each.grad.clone()
            for key, each in model.named_parameters()
            if each.grad is not None
        }
    torch.testing.assert_close(gradients[True], gradients[False])
    with refuses(ValueError, "use_reentrant=True", "every_n_layers=1", alone=True):
        model.activation_checkpointing_enable({"use_reentrant": True})
    model.activation_checkpointing_disable()
    assert not model.model.stack.checkpoint_activations


SIZES = {
    "attention_types": "diag,norm",
    "embed_dim": 16,
    "num_heads": 2,
    "ffn_dim": 8,
    "block_size": 4,
}
TOKENS = torch.tensor([[5, 9, 4, 17, 6, 8]])


@pytest.fixture
def saved(hf, tmp_path):
    """Save a model; the model, and one whose weights lie where a map says."""
    pytest.importorskip("accelerate", reason="pip install 'fairseq-transnormer[hf]'")

    def make(kind, config, device_map):
        torch.manual_seed(1)
        model = getattr(hf, kind)(hf.TransNormerConfig.of(config, 20)).eval()
        model.save_pretrained(tmp_path)
        places = {"device_map": device_map, "offload_folder": str(tmp_path / "weights")}
        return model, type(model).from_pretrained(tmp_path, **places).eval()

    return make


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "config", "device_map"),
    [
        ("TransNormerForMaskedLM", EncoderT2Config(**SIZES), {"": "disk"}),
        (
            "TransNormerForCausalLM",
            LanguageModelT2Config(**SIZES, untie_output_embedding=True),
            {"": "disk"},
        ),
        (
            "TransNormerForCausalLM",
            LanguageModelT2Config(**SIZES),
            {"model.embed_tokens": "cpu", "model.embed_positions": "cpu"}
            | {"model.stack": "disk"},
        ),
    ],
)
def test_weights_on_the_disk(kind, config, device_map, saved):
    model, other = saved(kind, config, device_map)
    torch.testing.assert_close(other(TOKENS).logits, model(TOKENS).logits)


@torch.no_grad()
def test_a_tied_embedding_on_the_disk_is_refused(saved):
    """torch would multiply by it all the same, and return what memory holds."""
    config = LanguageModelT2Config(**SIZES)
    _, model = saved("TransNormerForCausalLM", config, {"": "disk"})
    with refuses(ValueError, "embed_tokens.weight", "untie_output_embedding"):
        model(TOKENS)


def test_files_of_others_stay(exports, tmp_path):
    """... in the folder that a model is saved to, by names that an export has, too."""
    folder = shutil.copytree(exports[CAUSAL[0]].folder, tmp_path / "out")
    names = ("model-00001-of-00002.safetensors", "encoder.json", "vocab.bpe")
    names += ("notes.0123456789abcdef.new", ".saving")
    for name in names:
        (folder / name).write_text("mine")
    causal(folder).save_pretrained(folder)
    tokenizer_of(exports[CAUSAL[0]].folder).save_pretrained(folder)
    assert all((folder / name).read_text() == "mine" for name in names)
    digits = file_sha256(folder / "config.json")[:16]
    for name in ("important.txt", f"important.txt.{digits}.new"):
        (folder / name).write_text(name)
    assert load(folder).words.symbols == load(exports[CAUSAL[0]].folder).words.symbols
    assert (folder / "important.txt").read_text() == "important.txt"


def test_a_dictionary_of_equal_size_beside_a_model(exports, tmp_path):
    """It came there by hand, or with a tokenizer of another model."""
    folder = exports[CAUSAL[0]].folder
    lines = (folder / "dict.txt").read_text().splitlines(keepends=True)
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "dict.txt").write_text("".join(reversed(lines)))
    causal(folder).save_pretrained(other)
    for loads in (load, tokenizer_of):
        with refuses(CheckpointError, other, "dictionary_sha256", alone=True):
            loads(other)

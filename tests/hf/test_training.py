"""transformers' Trainer trains the models."""

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from fairseq_transnormer.checkpoints.load import load
from tests.zoo import CAUSAL, ENCODERS, HEADS

from .loading import LOAD, WITH_HEADS, causal, classifier, features_of, tokenizer_of

LINES = [" ".join(f"w{(i + j) % 40}" for j in range(3 + i % 5)) for i in range(24)]


@pytest.fixture(autouse=True)
def accelerate():
    """Trainer needs it."""
    pytest.importorskip("accelerate", reason="pip install 'fairseq-transnormer[hf]'")


def train(
    model, tokenizer, examples, collator, folder, resumes=None, **settings
) -> list[float]:
    """The losses of the updates."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        **{"per_device_train_batch_size": 4, "max_steps": 12, "learning_rate": 0.01}
        | {"logging_steps": 1, "use_cpu": True, "report_to": [], "save_steps": 6}
        | {"disable_tqdm": True, "lr_scheduler_type": "constant", "seed": 3}
        | settings,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=examples,
        data_collator=collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=resumes)
    return [each["loss"] for each in trainer.state.log_history if "loss" in each]


@pytest.mark.parametrize("kind", [CAUSAL[1], ENCODERS[0]])
def test_language_models(kind, exports, transformers, tmp_path):
    folder = exports[kind].folder
    tokenizer = tokenizer_of(folder)
    model = LOAD[kind](folder)
    examples = [tokenizer(line) for line in LINES]
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm=kind in ENCODERS
    )
    losses = train(model, tokenizer, examples, collator, tmp_path)
    assert len(losses) == 12 and sum(losses[-3:]) < sum(losses[:3]) - 0.5
    # a checkpoint is a folder as an export is
    loaded = load(tmp_path / "checkpoint-12")
    assert loaded.vocabulary.symbols == load(folder).vocabulary.symbols
    tokens = collator(examples[:3])["input_ids"]
    with torch.no_grad():
        expected = model.eval()(tokens).logits
        torch.testing.assert_close(loaded.model(tokens), expected)


@pytest.mark.parametrize("kind", [CAUSAL[1], ENCODERS[0], "classifier", "regression"])
def test_a_resumed_training(kind, exports, transformers, tmp_path):
    """... ends in the weights of one in one go; layers are recomputed in both."""
    folder = exports[kind].folder
    tokenizer = tokenizer_of(folder)
    examples = [dict(tokenizer(line)) for line in LINES]
    # pads have no label of a token
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
    if kind in HEADS:
        collator = transformers.DataCollatorWithPadding(tokenizer)
    for i, each in enumerate(examples):
        of_head = 0.25 * (i % 5) if kind == "regression" else i % 3
        each["labels"] = of_head if kind in HEADS else each["input_ids"]
    more = {"max_steps": 6, "save_steps": 3, "gradient_checkpointing": True}
    more["label_smoothing_factor"] = 0.0 if kind == "regression" else 0.1
    models = []
    for resumes in (None, str(tmp_path / "checkpoint-3")):
        model = WITH_HEADS[kind](folder)
        train(model, tokenizer, examples, collator, tmp_path, resumes, **more)
        assert model.is_gradient_checkpointing
        models.append(model.state_dict())
    start = WITH_HEADS[kind](folder).state_dict()
    assert all(torch.equal(x, models[1][name]) for name, x in models[0].items())
    assert any(not torch.equal(x, start[name]) for name, x in models[0].items())


def test_accumulated_batches_are_as_one(exports, transformers, tmp_path):
    """The loss is the mean over all targets of an update, however they are split."""
    folder = exports[CAUSAL[0]].folder
    tokenizer = tokenizer_of(folder, padding_side="right")
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    examples, losses = [tokenizer(line) for line in LINES], {}
    for size in (8, 2):
        model = causal(folder, dropout=0.0)
        losses[size] = train(
            model,
            tokenizer,
            examples,
            collator,
            tmp_path / str(size),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            max_steps=3,
        )
    assert losses[2] == pytest.approx(losses[8], abs=2e-4)


def test_a_classifier(exports, transformers, tmp_path):
    tokenizer = tokenizer_of(exports[ENCODERS[1]].folder)
    model = classifier(
        exports[ENCODERS[1]].folder, id2label={0: "low", 1: "high"}, dropout=0.0
    )
    examples = [
        tokenizer(f"w{i} w{i + 1}") | {"labels": int(i > 15)} for i in range(32)
    ]
    collator = transformers.DataCollatorWithPadding(tokenizer)
    more = {"max_steps": 30, "learning_rate": 0.004, "save_strategy": "no"}
    losses = train(model, tokenizer, examples, collator, tmp_path, **more)
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    run = transformers.pipeline("text-classification", model=str(tmp_path))
    assert [each["label"] for each in run(["w2 w3", "w29 w30"])] == ["low", "high"]


@pytest.mark.parametrize(
    ("name", "smoothing"),
    [(CAUSAL[0], 0.2), (CAUSAL[0], 0.0), (ENCODERS[0], 0.2), ("classifier", 0.2)],
)
def test_evaluation(name, smoothing, exports, transformers, tmp_path):
    """The mean loss of the labels, smoothed or not, and the logits."""
    model = WITH_HEADS[name](exports[name].folder)
    tokens = torch.randint(4, 40, (8, 9))
    labels = torch.arange(8) % 3 if name == "classifier" else tokens
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        **{"use_cpu": True, "report_to": [], "disable_tqdm": True},
        label_smoothing_factor=smoothing,
    )
    rows = [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
    trainer = transformers.Trainer(model=model, args=arguments, eval_dataset=rows)
    with torch.no_grad():
        logits = model(tokens).logits.double()
    seen, targets = logits, labels
    if name in CAUSAL:
        seen, targets = logits[:, :-1], labels[:, 1:]
    expected = torch.nn.functional.cross_entropy(
        seen.flatten(0, -2), targets.flatten(), label_smoothing=smoothing
    ).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    found = trainer.predict(rows)
    assert found.metrics["test_loss"] == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(torch.tensor(found.predictions).double(), logits)


NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
KINDS = (CAUSAL[1], ENCODERS[0], "classifier", "features")


def worker(rank, place, folders, found):
    """One of two: the gradients of half a batch, averaged over both."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=2
    )
    for kind, folder in folders.items():
        model = WITH_HEADS.get(kind, features_of)(folder, **NO_DROPOUT)
        model.gradient_checkpointing_enable()
        shared = DistributedDataParallel(model)
        for _ in range(2):  # unused parameters show at the second
            loss_of(shared, kind, slice(rank, None, 2)).backward()
        grads = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        found[rank, kind] = {name: grad.clone() for name, grad in grads.items()}
    dist.destroy_process_group()


def loss_of(model, kind, chosen):
    tokens = torch.arange(48).view(4, 12)[chosen] % 40 + 4
    if kind == "features":
        return model(tokens).last_hidden_state[..., 0].mean()
    labels = tokens[:, 0] % 3 if kind == "classifier" else tokens
    return model(tokens, labels=labels).loss


def test_two_workers(exports, tmp_path):
    """Gradients are those of the whole batch; none is waited for in vain."""
    names = {kind: kind if kind in exports else CAUSAL[0] for kind in KINDS}
    names["features"] = CAUSAL[0]
    folders = {kind: exports[name].folder for kind, name in names.items()}
    found = multiprocessing.Manager().dict()
    multiprocessing.start_processes(
        worker, (tmp_path / "meet", folders, found), nprocs=2, start_method="fork"
    )
    for kind, folder in folders.items():
        model = WITH_HEADS.get(kind, features_of)(folder, **NO_DROPOUT).train()
        (2 * loss_of(model, kind, slice(None))).backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                for rank in range(2):
                    torch.testing.assert_close(
                        found[rank, kind][name], parameter.grad, rtol=1e-4, atol=1e-6
                    )

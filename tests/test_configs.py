"""configs/ against Table 13 of the paper, and trainings by them."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_transnormer.modules.systems import SYSTEMS
from fairseq_transnormer.training.config import compose_words, flattened
from fairseq_transnormer.training.update_layout import check_update

from .forked_trainings import start_command, wait_for
from .messages import lines_naming
from .paths import CONFIGS, ROOT, TESTS
from .resolved_configs import hydra_config, hydra_config_now
from .tiny_data import write_tiny_data

PRIMARIES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
PAPER = ["alm_t1", "alm_t2", "blm_t1", "blm_t2"]
# Table 13: key, ALM, BLM. Where the paper contradicts itself the value is the one that
# gives its own parameter counts (GLU dimensions, printed the other way round) or that
# its vocabulary size implies (ALM by words, not BPE).
TABLE_13 = [
    ("task._name", "language_modeling", "masked_lm"),
    ("criterion._name", "chunked_cross_entropy", "chunked_masked_lm"),
    ("model.embed_dim", 512, 768),
    ("model.num_heads", 8, 12),
    ("model.ffn_type", "glu", "glu"),
    ("model.ffn_dim", 1365, 2048),
    ("model.ffn_activation", "silu", "silu"),
    ("task.tokens_per_sample", 512, 512),
    ("optimization.max_update", 100_000, 50_000),
    ("lr_scheduler._name", "inverse_sqrt", "polynomial_decay"),
    ("lr_scheduler.warmup_updates", 8000, 3000),
    ("optimization.lr", [5e-4], [5e-4]),
    ("lr_scheduler.lr", [5e-4], [5e-4]),
    ("optimizer._name", "fused_adam", "fused_adam"),
    ("optimizer.adam_eps", 1e-8, 1e-6),
    ("optimizer.adam_betas", "(0.9,0.98)", "(0.9,0.98)"),
    ("optimizer.weight_decay", 0.01, 0.01),
    ("optimization.clip_norm", 0, 0),
    ("model.dropout", 0.1, 0.1),
    ("model.attention_dropout", 0, 0.1),
    # sections 4 and 5: half of the layers local, half linear, blocks of 64
    ("model.attention_types", "diag*3,norm*3", "diag*6,norm*6"),
    ("model.block_size", 64, 64),
    # the released training commands
    ("task.sample_break_mode", "none", "complete"),
    ("common.fp16", False, False),
    ("common.bf16", False, False),
    # fairseq's default drops the last batch of a split
    ("dataset.required_batch_size_multiple", 1, 1),
]
TOTAL_BATCH = {"alm": 128, "blm": 512}
VOCABULARY = {"alm": 267_744, "blm": 50_265}
PARAMETERS = {"alm": 155_988_540, "blm": 124_673_241}
# Section 4.3: activation and norm of DiagAttention, feature map of NormAttention.
VARIANTS = {
    "t1": ("relu", "simple_rms_norm", "elu"),
    "t2": ("softmax", "none", "1+elu"),
}


def built(cfg, vocabulary: int) -> torch.nn.Module:
    """The model of a configuration, without memory for its weights."""

    class Words:
        def __len__(self):
            return vocabulary

        def pad(self):
            return 1

    task = SimpleNamespace(source_dictionary=Words(), target_dictionary=Words())
    with torch.device("meta"):
        return MODEL_REGISTRY[cfg.model._name].build_model(cfg.model, task)


def batch(cfg) -> int:
    """Sequences of an update."""
    (update_freq,) = cfg.optimization.update_freq
    processes = cfg.distributed_training.distributed_world_size
    return cfg.dataset.batch_size * update_freq * processes


@pytest.mark.parametrize("primary", PAPER)
def test_values_are_those_of_table_13(primary):
    task, variant = primary.split("_")
    cfg = hydra_config(primary)
    values = flattened(OmegaConf.to_container(cfg))
    expected = {key: alm if task == "alm" else blm for key, alm, blm in TABLE_13}
    assert {key: values[key] for key in expected} == expected
    assert batch(cfg) == TOTAL_BATCH[task]
    assert (
        cfg.model.diag_activation,
        cfg.model.diag_norm,
        cfg.model.norm_attention_activation,
    ) == VARIANTS[variant]
    if task == "alm":
        assert cfg.lr_scheduler.warmup_init_lr == 1e-7
    else:
        assert cfg.lr_scheduler.total_num_update == 50_000
        assert cfg.model.max_positions == 512


@pytest.mark.parametrize("primary", PAPER)
def test_model_has_the_papers_parameter_count(primary):
    task = primary.split("_")[0]
    model = built(hydra_config(primary), VOCABULARY[task])
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[task]


@pytest.mark.parametrize("primary", PRIMARIES)
def test_each_primary_has_the_updates_that_it_declares(primary, monkeypatch):
    said = compose_words(CONFIGS, primary, []).environment
    said = said.get("SEQUENCES_PER_UPDATE", "")
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", said)
    cfg = hydra_config(primary)
    check_update(cfg, cfg.distributed_training.distributed_world_size)


@pytest.fixture(scope="module")
def working_copy(tmp_path_factory) -> Path:
    """A folder to start training in as in the repository, and with data."""
    folder = tmp_path_factory.mktemp("copy")
    (folder / "fairseq_transnormer").symlink_to(ROOT / "fairseq_transnormer")
    write_tiny_data(folder / "data-bin" / "stdlib")
    return folder


SHORT = ["dataset.batch_size=2", "task.tokens_per_sample=32", "common.log_interval=1"]


@pytest.mark.slow
def test_fairseq_hydra_train_trains_with_its_own_loop(working_copy):
    """And says how to have ours."""
    command = Path(sys.executable).with_name("fairseq-hydra-train")
    words = ["--config-dir", CONFIGS, "--config-name", "alm_small", *SHORT]
    words += ["optimization.max_update=2", "hydra.run.dir=runs/bare"]
    done = subprocess.run(
        [command, *words], cwd=working_copy, capture_output=True, text=True
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert lines_naming(text, "python -m fairseq_transnormer train")
    assert (working_copy / "runs/bare/checkpoints/checkpoint_last.pt").exists()


def test_the_small_bidirectional_model_trains_from_any_folder(working_copy, tmp_path):
    data, log = working_copy / "data-bin" / "stdlib", tmp_path / "output"
    words = ["train", "blm_small", "optimization.max_update=2", "--data", data, *SHORT]
    training = start_command("fairseq_transnormer", words, log, tmp_path)
    assert wait_for([training]) == [0], log.read_text()[-3000:]
    folder = tmp_path / "runs" / "blm_t2_small"
    assert (folder / "config.yaml").exists()
    assert (folder / "checkpoints" / "checkpoint_last.pt").exists()


# whose models are files, and whose groups, too
ALONE = sorted({*PRIMARIES} - {"finetune", "lra"})


@pytest.mark.parametrize("primary", ALONE)
def test_fairseq_hydra_train_reads_the_same(primary):
    """It puts fairseq's defaults where ``_self_`` stands in the file."""
    assert hydra_config_now(primary) == hydra_config(primary)


PROBLEMS = {
    # name: batch, classes, metric; the paper's seven columns and two more
    "mnli": (32, 3, "accuracy"),
    "qnli": (32, 2, "accuracy"),
    "qqp": (32, 2, "accuracy"),
    "sst2": (32, 2, "accuracy"),
    "mrpc": (16, 2, "f1"),
    "cola": (16, 2, "mcc"),
    "rte": (16, 2, "accuracy"),
    "stsb": (16, 1, "correlation"),
    "own": (32, 2, "accuracy"),
    "topics": (32, 2, "accuracy"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_fine_tuning_is_the_papers(problem):
    cfg = hydra_config("finetune", f"classification={problem}")
    found = (
        cfg.dataset.batch_size,
        cfg.task.num_classes,
        cfg.checkpoint.best_checkpoint_metric,
    )
    assert found == PROBLEMS[problem]
    assert cfg.criterion._name == "sentence_prediction_metrics"
    assert cfg.task.regression_target == (problem == "stsb")
    subsets = {"mnli": "valid,valid1", "topics": "valid,test"}
    assert cfg.dataset.valid_subset == subsets.get(problem, "valid")
    assert (
        cfg.optimization.max_epoch == 3 and cfg.checkpoint.finetune_from_model is None
    )
    assert cfg.lr_scheduler._name == "polynomial_decay"
    assert cfg.dataset.required_batch_size_multiple == 1


# the specification's table: tokens, classes, batch, learning rate, warm-up
ARENA = {
    "text": (4096, 16, 1e-4, 80),
    "listops": (2048, 32, 1e-4, 1000),
    "retrieval": (4096, 16, 2e-4, 800),
    "pathfinder": (1024, 128, 2e-4, 312),
    "image": (1024, 256, 1e-4, 175),
}


@pytest.mark.parametrize("arena", ARENA)
def test_the_arena_is_trained_as_in_appendix_e(arena):
    cfg = hydra_config("lra", f"lra={arena}")
    found = (
        cfg.task.max_positions,
        cfg.dataset.batch_size,
        *cfg.optimization.lr,
        cfg.lr_scheduler.warmup_updates,
    )
    assert found == ARENA[arena]
    assert (cfg.task.arena, cfg.model.max_positions) == (arena, found[0])
    assert cfg.task.data.endswith(f"data-bin/lra/{arena}")
    assert cfg.optimization.max_update == cfg.lr_scheduler.total_num_update == 50_000
    assert batch(cfg) == cfg.dataset.batch_size
    # AdamW, one cycle, values clipped and not the norm
    assert (cfg.optimizer.adam_betas, cfg.optimizer.adam_eps) == ("(0.9,0.999)", 1e-6)
    assert cfg.optimizer.weight_decay == 0 == cfg.optimization.clip_norm
    assert (cfg.lr_scheduler._name, cfg.lr_scheduler.power) == ("polynomial_decay", 1)
    assert cfg.lr_scheduler.end_learning_rate == 0 and cfg.task.clip_value == 1
    # counted in updates; saving validates
    every = cfg.dataset.validate_interval_updates
    assert cfg.checkpoint.save_interval_updates == every
    assert cfg.checkpoint.best_checkpoint_metric == "accuracy"
    assert cfg.checkpoint.maximize_best_checkpoint_metric


@pytest.mark.parametrize(
    ("kind", "system"),
    [(kind, each) for each in SYSTEMS.values() for kind in each.kinds],
    ids=lambda part: getattr(part, "name", part),
)
def test_every_system_is_a_choice_of_its_kind(kind, system):
    cfg = hydra_config(kind, f"model={kind}_{system.name}")
    assert cfg.model._name == system.architecture_of(kind)


# All values that each configuration had before values had one home, defaults of
# fairseq and of the models included: a default that moves changes no training
# unnoticed. What is changed on purpose is changed there too.
FROZEN = json.loads((TESTS / "frozen_configurations.json").read_text())
ABSENT = "(absent)"


def frozen(name: str) -> dict:
    """All values of a configuration; the file has what differs from another's."""
    if name == "alm":
        return FROZEN[name]
    base = name.split()[0] if " " in name else "alm"
    values = frozen(base) | FROZEN[name]
    return {key: value for key, value in values.items() if value != ABSENT}


@pytest.mark.parametrize("name", FROZEN)
def test_values_are_as_before(name):
    primary, *choices = name.split()
    plain = OmegaConf.to_container(hydra_config(primary, *choices))
    now = {
        key: value.replace(str(ROOT), "ROOT") if isinstance(value, str) else value
        for key, value in flattened(plain).items()
    }
    expected = frozen(name)
    assert {key: now.get(key, ABSENT) for key in expected} == expected
    assert now.keys() == expected.keys()

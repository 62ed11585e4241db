"""What fairseq makes of the processes and GPUs that it finds itself among."""

import os

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

import fairseq_transnormer.plugin  # noqa: F401 (Slurm and torchrun)


@pytest.fixture
def job(tmp_path, monkeypatch):
    """job(**variables): the environment of a job of Slurm on one node with two GPUs."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho node7\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def enter(**variables):
        for name in [name for name in os.environ if name.startswith("SLURM_")]:
            monkeypatch.delenv(name)
        of_every_script = {"JOB_ID": 70, "JOB_NODELIST": "node7", "NNODES": 1}
        for name, value in (of_every_script | {"NODEID": 0} | variables).items():
            monkeypatch.setenv(f"SLURM_{name}", str(value))

    return enter


def inferred(**options):
    training = OmegaConf.structured(FairseqConfig()).distributed_training
    for name, value in options.items():
        training[name] = value
    distributed_utils.infer_init_method(training)
    return training


@pytest.mark.parametrize("tasks", [{}, {"NTASKS": 1}, {"NTASKS_PER_NODE": 1}])
def test_a_batch_script_has_the_gpus_of_its_node(job, tasks):
    job(**tasks)
    training = inferred(distributed_world_size=2)
    assert training.distributed_init_method.startswith("tcp://localhost:")
    assert (training.distributed_world_size, training.distributed_num_procs) == (2, 2)
    assert not training.distributed_no_spawn


def test_a_task_of_slurm_is_told_by_slurm(job):
    job(NTASKS=2, NNODES=2, NODEID=1)
    training = inferred(distributed_world_size=4, distributed_port=29500)
    assert training.distributed_init_method == "tcp://node7:29500"
    assert (training.distributed_world_size, training.distributed_rank) == (4, 2)

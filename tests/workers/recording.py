"""What a training process notes: sums of losses and counts, unrounded, of each step.

fairseq's log rounds a loss to three digits. The process that the trainings are forked
off loads this.
"""

import json
from pathlib import Path

import torch


def record(file: Path) -> None:
    """Let the first worker write a line for each update and each validation step."""
    from fairseq.trainer import Trainer

    original = Trainer._reduce_and_log_stats

    def reduce_and_log_stats(trainer, outputs, sample_size, grad_norm=None):
        if trainer.data_parallel_rank == 0:
            sums = {
                key: sum(float(each.get(key, 0)) for each in outputs)
                for key in ("loss", "ntokens", "nsentences", "correct")
            }
            step = {
                "kind": "valid" if grad_norm is None else "train",
                "update": trainer.get_num_updates(),
                "gnorm": None if grad_norm is None else float(grad_norm),
                "sample_size": float(sample_size),
                "batches": len(outputs),  # of one worker: of several they are summed
                **sums,
            }
            with file.open("a") as stream:
                stream.write(json.dumps(step) + "\n")
        return original(trainer, outputs, sample_size, grad_norm)

    Trainer._reduce_and_log_stats = reduce_and_log_stats


def let_pytorch_ddp_take_cpus() -> None:
    """fairseq names a GPU to it; nothing else keeps it from the CPU."""
    from fairseq.models import distributed_fairseq_model

    class OnCpus(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module, device_ids, output_device, **keywords):
            super().__init__(module, **keywords)

    distributed_fairseq_model.DistributedDataParallel = OnCpus

"""Peak memory and model FLOPs utilisation in fairseq's training log.

``gb_peak``: the most GiB that torch held on the GPU since the last update; on the CPU,
the peak of the process. ``mfu``: model FLOPs per second (tokens per second times
``model_flops``) over the peak of the devices, from 0 to 1. It needs a known device, or
``peak_tflops``, and sequences that all have the task's ``tokens_per_sample``
(``language_modeling``, ``masked_lm``).
"""

import logging
import re
import resource
import sys

import torch
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from torch import nn

from ...modules.model_flops import TRAINING_OVER_FORWARD, layer_flops, output_flops
from ...ops.backend import product_dtype, tf32_is_allowed

logger = logging.getLogger(__name__)

# part of a GPU's name -> TFLOP/s of dense products in 16 bits (V100: float16 only),
# TF32 and float32, by NVIDIA's data sheets. The first match counts
PEAK_TFLOPS = {
    "H100 PCIe": (756, 378, 51),
    "H100 NVL": (835, 418, 60),
    "H100": (989, 494, 67),
    "H200": (989, 494, 67),
    "A100": (312, 156, 19.5),
    "V100": (125, 15.7, 15.7),
}


class LogsUtilisation:
    """Mixin of fairseq models: logs ``gb_peak`` and, if it is known, ``mfu``."""

    update_begins = False

    def measure_utilisation(self, task, peak_tflops: float | None) -> None:
        """Measure the training with ``task``, relative to the peak of one device."""
        self.flops, self.peak_tflops = training_flops(self, task), peak_tflops
        self.register_forward_pre_hook(_log_at_the_first_pass)

    def set_num_updates(self, num_updates):
        """fairseq calls this before each forward pass of training."""
        super().set_num_updates(num_updates)
        self.update_begins = True


def _log_at_the_first_pass(model: LogsUtilisation, inputs) -> None:
    # not in set_num_updates, which is called outside of autocast
    if not (model.update_begins and model.training):
        return
    model.update_begins = False
    metrics.log_derived("gb_peak", _peak_memory, priority=1510)
    peak = model.peak_tflops or known_peak(next(model.parameters()))
    if model.flops is None or peak is None:
        return
    possible = peak * 1e12 * get_data_parallel_world_size() / model.flops

    def share(meters) -> float:
        # there are no tokens yet where each update so far overflowed
        speed = float(meters["wps"].avg) if "wps" in meters else 0.0
        return round(speed / possible, 4)

    metrics.log_derived("mfu", share, priority=91)


def _peak_memory(meters) -> float:
    if "gb_free" in meters:  # fairseq's: what the GPU has, less the peak
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory / 1024**3
        return round(total - meters["gb_free"].val, 2)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return round(peak / 1024**3, 2)


def training_flops(model: nn.Module, task) -> float | None:
    """Model FLOPs per token of training ``model`` for ``task``, or None."""
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    length = getattr(settings, "tokens_per_sample", None)
    is_a_line = getattr(settings, "sample_break_mode", None) == "eos"  # each sequence
    if is_a_line or not isinstance(length, int):
        return None
    bidirectional = not hasattr(model, "decoder")
    part = model.encoder if bidirectional else model.decoder
    predicted = getattr(settings, "mask_prob", 1.0) if bidirectional else 1.0
    vocab_size, embed_dim = part.model.embed_tokens.weight.shape
    try:
        forward = layer_flops(part.model.stack, length) + output_flops(
            embed_dim, vocab_size, dense=bidirectional, predicted=predicted
        )
    except ValueError as error:
        logger.info("no mfu in the log: %s", error)
        return None
    return TRAINING_OVER_FORWARD * forward


def known_peak(parameter: torch.Tensor) -> float | None:
    """TFLOP/s of a parameter's device by the data sheet, or None if unknown.

    The figure is that of the dtype of products: the parameter's, or autocast's.
    """
    if parameter.device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(parameter.device)
    for part, (half, tf32, single) in PEAK_TFLOPS.items():
        if re.search(rf"\b{part}\b", name):
            dtype = product_dtype(parameter)
            if dtype == torch.float32:
                return tf32 if tf32_is_allowed() else single
            # a V100 has no units for bfloat16
            return None if (part, dtype) == ("V100", torch.bfloat16) else half
    return None

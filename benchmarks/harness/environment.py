"""What a measurement was taken on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

import fairseq_transnormer


def describe(device: torch.device) -> dict[str, object]:
    """Device, threads and versions, ready for JSON."""
    described = {
        "device": device_name(device),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": _version("ve-fairseq", "fairseq-fixed", "fairseq"),
        "fairseq_transnormer": fairseq_transnormer.__version__,
    }
    if device.type == "cuda":
        described["cuda"] = torch.version.cuda
        described["capability"] = list(torch.cuda.get_device_capability(device))
    return described


def peers() -> dict[str, str]:
    """Versions of Triton and of the kernels of others, as far as installed."""
    found = map(_version, ("triton", "fla-core", "liger-kernel", "lightning_attn"))
    return dict(each.rsplit(" ", 1) for each in found if each is not None)


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


def cpu_name() -> str:
    """The model of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(*distributions: str) -> str | None:
    """Name and version of the first of these that is installed."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None

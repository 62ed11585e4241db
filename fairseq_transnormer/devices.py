"""The device that a model runs on, checked before any file is read."""

from __future__ import annotations

import re

import torch


def usable_device(device: str | torch.device | None = None) -> torch.device:
    """Return a device that torch can put a tensor on.

    Args:
        device: by default "cuda" if there is one, else "cpu".

    Raises:
        ValueError: there is no such device, or torch has no kernels for it.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        usable = torch.empty(0, device=device).device
    # torch raises AssertionError where it is built without the device
    except (RuntimeError, AssertionError) as error:
        reason = re.split(r"\n|\. ", str(error))[0]
        raise ValueError(f"device={device}: {reason}") from error
    check_torch_build(usable)
    return usable


def check_torch_build(device: torch.device) -> None:
    """Raise ValueError if this build of torch has no kernels for a device.

    The default builds have none for V100. The message names the build to install.
    """
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    built_for = torch.cuda.get_arch_list()
    if any(_runs(name, *capability) for name in built_for):
        return
    version = torch.__version__.partition("+")[0]
    raise ValueError(
        f"torch {torch.__version__} has no kernels for "
        f"{torch.cuda.get_device_name(device)}, of compute capability "
        f"{'.'.join(map(str, capability))}, but for {', '.join(built_for)}: install a "
        f"build for CUDA 12.6 (pip install torch=={version} --index-url "
        "https://download.pytorch.org/whl/cu126)"
    )


def _runs(architecture: str, major: int, minor: int) -> bool:
    """Whether code for an architecture, such as sm_90a or compute_120, runs there."""
    kind, _, number = architecture.partition("_")
    digits = re.sub(r"\D", "", number)
    built = int(digits[:-1]), int(digits[-1])
    if kind == "compute":  # what the driver can compile
        return built <= (major, minor)
    return built[0] == major and built[1] <= minor

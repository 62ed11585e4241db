"""Where a trained model runs: chosen, or refused before the model is read."""

from __future__ import annotations

import torch


def usable_device(device: str | torch.device | None = None) -> torch.device:
    """A device that torch can put a tensor on.

    Args:
        device: by default "cuda" if there is one, else "cpu".

    Raises:
        ValueError: there is no such device.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=device).device
    # torch raises AssertionError where it is built without the device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={device}: {reason}") from error

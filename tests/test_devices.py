"""A device that this build of torch has no kernels for is refused in one sentence."""

import pytest
import torch

from fairseq_transnormer.devices import check_torch_build
from tests.messages import refuses

DEFAULT = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
CUDA_12_6 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 0), DEFAULT, False),
        ((7, 0), CUDA_12_6, True),
        ((7, 5), DEFAULT, True),
        ((8, 9), DEFAULT, True),
        ((9, 0), ["sm_90a"], True),
        ((12, 1), DEFAULT, True),
        ((13, 0), DEFAULT, True),
        ((10, 3), CUDA_12_6, False),
        ((6, 1), CUDA_12_6, True),
    ],
)
def test_builds(capability, built_for, runs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built_for)
    device = torch.device("cuda", 0)
    if runs:
        check_torch_build(device)
    else:
        found = f"{capability[0]}.{capability[1]}"
        with refuses(ValueError, "Tesla V100", found, "CUDA 12.6", built_for[0]):
            check_torch_build(device)

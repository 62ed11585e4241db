"""What holds only once the kernels have been verified on a GPU."""

import pytest

from fairseq_transnormer.ops.backend import VERIFIED_ON_A_GPU

verified = pytest.mark.skipif(
    not VERIFIED_ON_A_GPU, reason="the kernels have not been verified on a GPU yet"
)

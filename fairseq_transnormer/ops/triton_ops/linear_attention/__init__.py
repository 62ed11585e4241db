"""Linear attention as Triton kernels; dispatch.py tells which of them take a call."""

"""The ops as Triton kernels. Nothing here is imported before it is needed."""

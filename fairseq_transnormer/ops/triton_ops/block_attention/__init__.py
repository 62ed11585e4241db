"""Block attention as Triton kernels: kernels.py, and their launches in launch.py."""

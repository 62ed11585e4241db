"""CPU seconds of a fixed computation, by which seconds of two machines are compared."""

import time

import torch


def seconds() -> float:
    """Two million turns of a loop of Python, 60 products of 512 x 512 in one thread."""
    torch.set_num_threads(1)
    x, total = torch.randn(512, 512), 0
    begin = time.process_time()
    for i in range(2_000_000):
        total += i % 7
    for _ in range(60):
        x = (x @ x).tanh()
    return time.process_time() - begin


if __name__ == "__main__":
    print(f"reference computation      {seconds():6.2f} CPU s")

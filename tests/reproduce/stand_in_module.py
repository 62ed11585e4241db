"""What ``python -m`` runs in the place of a training: says where it is, and ends."""

import json
import os
import sys
import time
from pathlib import Path


class Writer:
    def close(self) -> None:
        print("closed")


def main(end: str) -> int:
    forked = "fairseq_transnormer.training.main" in sys.modules
    threads = os.environ["OMP_NUM_THREADS"]
    here = {
        "forked": forked,
        "folder": os.getcwd(),
        "leads": os.getpgrp() == os.getpid(),
        "threads": sys.modules["torch"].get_num_threads() if forked else int(threads),
        "device": os.environ["CUDA_VISIBLE_DEVICES"],
        "name": __name__,
        "files": len(os.listdir("/proc/self/fd")),
    }
    print(json.dumps(here))
    if forked:  # as fairseq keeps tensorboard's files open until a process ends
        writers = sys.modules["fairseq.logging.progress_bar"]._tensorboard_writers
        writers["train"] = Writer()
    print("to the other one", file=sys.stderr)
    Path("ready").touch()
    if end == "hangs":
        time.sleep(60)
    if end == "raises":
        raise RuntimeError("no such thing")
    if end == "says":
        sys.exit("the disk is full")
    return int(end)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

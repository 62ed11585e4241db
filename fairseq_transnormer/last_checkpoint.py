"""The checkpoint that a run goes on from: is it of this run."""

from pathlib import Path

from .fault_tolerance.checkpoint_files import is_whole


def check_last_checkpoint(arch: str, save_dir: Path) -> None:
    """Raise ValueError if the run in ``save_dir`` is of another architecture.

    T1 and T2 have the same parameters by name and shape: fairseq would go on. A damaged
    checkpoint passes: training begins with another one in its place.
    """
    from .safe_loading import read_checkpoint

    last = save_dir / "checkpoint_last.pt"
    if not last.exists() or not is_whole(last):
        return
    state = read_checkpoint(last, mmap=True, compare_sums=False)
    found = (state.get("cfg") or {}).get("model", {}).get("_name", arch)
    if found != arch:
        raise ValueError(
            f"{last} is of {found}; allowed with it: {found}, or another folder for "
            f"{arch}"
        )

"""The checkpoint that a run resumes from: is it of this run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .fault_tolerance.checkpoint_files import LAST, is_whole


def check_last_checkpoint(arch: str, save_dir: Path) -> None:
    """Raise ValueError if the run in ``save_dir`` is of another architecture.

    Scripts ask in a moment, before anything is started; the start of training looks at
    all settings (fault_tolerance/setting_changes.py). A damaged checkpoint passes:
    training begins with another one in its place.
    """
    from .safe_loading import read_checkpoint

    last = save_dir / LAST
    if not last.exists() or not is_whole(last):
        return
    state = read_checkpoint(last, mmap=True, compare_sums=False)
    found = architecture((state.get("cfg") or {}).get("model", {}), arch)
    if found != arch:
        raise ValueError(another_architecture(last, found, arch))


def architecture(model: Mapping[str, Any], default: str | None = None) -> str | None:
    """The name of a model's configuration; fairseq's older ones call it "arch"."""
    return model.get("_name") or model.get("arch") or default


def another_architecture(path: Path | str, found: str | None, arch: str | None) -> str:
    """The message: T1 and T2 have the same parameters by name and shape."""
    return (
        f"{path} is of {found}; allowed with it: --arch {found}, or another folder "
        f"(--save-dir) for {arch}"
    )

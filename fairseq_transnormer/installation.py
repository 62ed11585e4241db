"""Where the package is: in a clone of its repository, or installed by pip.

A wheel holds the configurations inside the package, and data_prep as a second package.
Only the repository has benchmarks, scripts and results.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_REPOSITORY = PACKAGE.parent
# the repository; None where the package is installed without it
CLONE = _REPOSITORY if (_REPOSITORY / "configs" / "alm.yaml").is_file() else None
CONFIGS = CLONE / "configs" if CLONE else PACKAGE / "configs"


def working_folder() -> Path:
    """The base of relative names of data: the clone, or the current folder."""
    return CLONE or Path.cwd()

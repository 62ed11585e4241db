"""matplotlib as all analyses use it: without a screen, reproducible files."""

from pathlib import Path


def pyplot():
    """``matplotlib.pyplot``, imported when a figure is asked for."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure, target: Path) -> None:
    """Write a figure as an image; folders are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120, metadata={"Software": None})
    pyplot().close(figure)


def named_paths(arguments: list[str]) -> dict[str, Path]:
    """Name -> path of each "NAME=PATH", or of a "PATH", which then is its own name.

    Raises:
        ValueError: two have one name.
    """
    paths = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            name, path = argument, argument
        if name in paths:
            raise ValueError(f"{name!r} names two files; allowed: NAME=PATH, each once")
        paths[name] = Path(path)
    return paths

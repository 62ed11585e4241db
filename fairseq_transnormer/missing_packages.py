"""One sentence for a package that is not installed."""

HOW = (
    "bash scripts/install.sh in a clone, or pip install -e with the extra that "
    "docs/install.md names; fairseq needs Python 3.11 or 3.12"
)


def explanation(error: ImportError) -> str:
    """What is missing, and how to install it."""
    missing = (error.name or "").partition(".")[0]
    is_own = missing in ("", "fairseq_transnormer", "benchmarks", "data_prep")
    if is_own or not isinstance(error, ModuleNotFoundError):
        return " ".join(str(error).split())
    return f"{missing} is not installed: {HOW}"

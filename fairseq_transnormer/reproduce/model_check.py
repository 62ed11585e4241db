"""Builds a configuration's model: mistakes in it show before any training."""

import functools
import json
from typing import Any

from .errors import ReproduceError

# the vocabulary decides nothing here, and would take most of the time
FEW_WORDS = 8


class _Dictionary:
    def __len__(self) -> int:
        return FEW_WORDS

    def pad(self) -> int:
        return 1


def check_model(model: dict[str, Any]) -> None:
    """Raise ReproduceError if the model refuses a value; it says which."""
    _build(json.dumps(model, sort_keys=True))


@functools.cache
def _build(model: str) -> None:
    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import FairseqTask
    from omegaconf import OmegaConf

    class Task(FairseqTask):
        source_dictionary = target_dictionary = _Dictionary()
        # of a classifier's task
        vocabulary_size, num_classes, num_sequences = FEW_WORDS, 2, 1

    configuration = OmegaConf.create(json.loads(model))
    try:
        MODEL_REGISTRY[configuration._name].build_model(configuration, Task(None))
    except ValueError as error:
        raise ReproduceError(f"model {configuration._name}: {error}") from error

"""Named architectures: registered models, each with its own dataclass.

fairseq's architecture functions set values on the command line only; Hydra ignores
them. So the values of a variant are the defaults of its dataclass.
"""

import sys
from dataclasses import dataclass, fields
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model

from ...modules.config import with_defaults
from ...modules.options import described
from .gradient_recording import record_gradients
from .utilisation import LogsUtilisation


@dataclass
class VariantConfig(FairseqDataclass):
    """Options of every variant on what its training logs."""

    gradient_statistics: Optional[str] = described(  # noqa: UP045 (read by fairseq)
        None,
        "file for the norm and mean of each gradient at each update, JSON lines",
        training_only=True,
    )
    peak_tflops: Optional[float] = described(  # noqa: UP045 (read by fairseq)
        None,
        "TFLOP/s that one device can do, for mfu in the log; by default that of its "
        "data sheet, where it is a V100, A100, H100 or H200",
        above=0,
        training_only=True,
    )


class Variant(LogsUtilisation):
    """Mixin of fairseq models, between a variant and its model."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model, and set up the measurement of its training with ``task``."""
        model = super().build_model(cfg, task)
        path = getattr(cfg, "gradient_statistics", None)
        if path:
            record_gradients(model, task, path)
        model.measure_utilisation(task, getattr(cfg, "peak_tflops", None))
        return model


def register_variant(name: str, model: type, config: type, **defaults) -> None:
    """Make a subclass of ``model`` known to ``--arch`` and to Hydra's ``model._name``.

    defaults: values in which it differs from ``config``, a ``VariantConfig``.
    """
    config_name = "".join(part.title() for part in name.split("_")) + "Config"
    members = {"__module__": model.__module__}
    described_as = members | {"__doc__": config.__doc__}
    own = with_defaults(**defaults)(type(config_name, (config,), described_as))
    variant = type(name, (Variant, model), members)
    register_model(name, dataclass=own)(variant)
    # pickle looks classes up by name
    vars(sys.modules[model.__module__]).update({config_name: own, name: variant})


def as_dataclass(config: type, cfg):
    """The plain dataclass ``config`` with its fields' values taken from ``cfg``."""
    return config(**{each.name: getattr(cfg, each.name) for each in fields(config)})

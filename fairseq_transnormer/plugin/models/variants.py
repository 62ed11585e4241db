"""Named architectures: registered models with dataclasses of their own.

fairseq's architecture functions set their values on the command line only; Hydra
ignores them. A variant's values are therefore the defaults of its dataclass.
"""

import sys
from dataclasses import fields, make_dataclass

from fairseq.models import register_model

from ...modules.config import with_defaults
from ...modules.options import checked
from .gradient_recording import GradientRecordingOptions, RecordsGradients
from .utilisation import LogsUtilisation, UtilisationOptions


class ChecksFields:
    """Mixin of fairseq models: ``build_model`` refuses values that are not allowed.

    OmegaConf knows types, but no bounds, and ``as_dataclass`` the fields of the plain
    dataclass alone.
    """

    fields = ()

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model, if all values of its configuration are allowed."""
        for each in cls.fields:
            if hasattr(cfg, each.name):
                checked(each, getattr(cfg, each.name))
        return super().build_model(cfg, task)


def register_variant(name: str, model: type, config: type, **defaults) -> None:
    """Make ``model`` known as ``name`` to ``--arch`` and to Hydra's ``model._name``.

    Every variant can record its gradients (``gradient_recording``) and logs how well it
    uses the device (``utilisation``).

    Args:
        name: of the architecture.
        model: the fairseq model class; the variant is a subclass of it.
        config: its dataclass.
        defaults: values in which the variant differs from it.
    """
    config_name = "".join(part.title() for part in name.split("_")) + "Config"
    config = make_dataclass(
        config.__name__,
        [],
        bases=(config, GradientRecordingOptions, UtilisationOptions),
        namespace={"__doc__": config.__doc__},
    )
    namespace = {"__module__": model.__module__, "__doc__": config.__doc__}
    dataclass = with_defaults(**defaults)(type(config_name, (config,), namespace))
    bases = (ChecksFields, RecordsGradients, LogsUtilisation, model)
    members = {"__module__": model.__module__, "fields": fields(dataclass)}
    variant = type(name, bases, members)
    register_model(name, dataclass=dataclass)(variant)
    # pickle looks classes up by name
    module = sys.modules[model.__module__]
    setattr(module, config_name, dataclass)
    setattr(module, name, variant)


def as_dataclass(config: type, cfg):
    """The plain dataclass ``config`` with its fields' values taken from ``cfg``.

    Raises:
        ValueError: a value is not allowed; the field is named.
    """
    return config(**{each.name: getattr(cfg, each.name) for each in fields(config)})

"""Fields of models that older checkpoints and exports lack.

A missing field has its default. If older models computed something else, the default
would silently change what their weights compute. Code that reads a configuration fills
in these fields first.
"""

from collections.abc import Collection, MutableMapping
from typing import Any

# field -> the field that had its role before
TOOK = {"attention_norm_eps": "norm_eps"}
# a field of all layer stacks of this package, but not of other packages' models
MARK = "attention_types"


def fill_in(model: MutableMapping[str, Any], fields: Collection[str] = TOOK) -> None:
    """Add missing fields to a model's configuration, in place.

    Args:
        model: the group "model" of a checkpoint, or "config" of an export. Models of
            other packages are not changed.
        fields: names of the model's fields.
    """
    if MARK not in model:
        return
    for name, source in TOOK.items():
        if name in fields and name not in model and source in model:
            model[name] = model[source]

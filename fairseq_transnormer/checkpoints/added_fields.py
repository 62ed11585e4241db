"""Fields of a model that checkpoints and exports from before them lack.

A missing field takes its default. Where models did something else before the field was
there, that would change what their weights compute without a word: such fields stand
here, and whoever reads a configuration fills them in first.
"""

from collections.abc import Collection, MutableMapping
from typing import Any

# field -> the field whose value it took before
TOOK = {"attention_norm_eps": "norm_eps"}
# what all layer stacks of this package have, and models of others do not
MARK = "attention_types"


def fill_in(model: MutableMapping[str, Any], fields: Collection[str] = TOOK) -> None:
    """Add to a model's configuration, in place, what it lacks of these fields.

    Args:
        model: the group "model" of a checkpoint, or "config" of an export. Models of
            other packages stay as they are.
        fields: that the model has.
    """
    if MARK not in model:
        return
    for name, source in TOOK.items():
        if name in fields and name not in model and source in model:
            model[name] = model[source]

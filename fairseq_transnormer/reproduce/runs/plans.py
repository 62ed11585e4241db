"""Plans: what a run is to be, and in what two of them differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...checkpoints.files import LAST
from ...modules.registry import unused_options
from ...training.config import Configuration, flattened, get
from ..errors import ReproduceError

# steps whose result the others read
TRAININGS = ("train", "measure")
# what fused_adam is, but for the place of eps
FAIRSEQS_ADAM = {
    "optimizer._name": "adam",
    "optimizer.use_old_adam": False,
    "optimizer.fp16_adam_stats": False,
    "optimizer.tpu": False,
}


@dataclass(frozen=True)
class Step:
    """A command of a run; it is run in the run's folder."""

    name: str
    command: list[str]

    @property
    def log(self) -> str:
        """Name of the file that its output goes to."""
        return f"{self.name}.log"


@dataclass
class Plan:
    """A run that is to be.

    Attributes:
        name: of its folder; runs of the same name are the same run.
        configuration: what it trains with.
        data: folder of the data.
        data_fingerprint: changes with the data.
        seed: of the run.
        updates: that the training has, for progress.
        steps: commands, in this order.
        origin: where the configuration comes from, for readers.
        machine_keys: keys of the configuration, or sections with a dot after them,
            that may change when a run resumes on another machine.
        layout_keys: keys that must stay as they are until the run is finished.
        needs: names of the runs that must be finished before this one.
        start: the checkpoint that its weights come from, absolute or as seen from the
            run's folder; None for fresh weights.
        weights: fingerprint of the weights in it; None where it is known only when the
            run starts.
        chosen: keys of the configuration that were set for this run.
    """

    name: str
    configuration: Configuration
    data: str
    data_fingerprint: str
    seed: int
    updates: int
    steps: list[Step]
    origin: dict[str, Any] = field(default_factory=dict)
    machine_keys: tuple[str, ...] = ()
    layout_keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    start: str | None = None
    weights: str | None = None
    chosen: tuple[str, ...] = ()


def sequences_per_update(configuration: Configuration) -> list[int]:
    """Of all devices and accumulated batches together, for each of fairseq's epochs.

    Of a training by tokens, with no batch size: batches.
    """
    batch = get(configuration, "dataset.batch_size") or 1
    devices = get(configuration, "distributed_training.distributed_world_size") or 1
    freq = get(configuration, "optimization.update_freq") or [1]
    return [batch * devices * each for each in freq]


def starting_checkpoint(configuration: Configuration) -> str | None:
    """The checkpoint that fairseq starts this training from; None: fresh weights."""
    found = get(configuration, "checkpoint.finetune_from_model")
    restored = get(configuration, "checkpoint.restore_file")
    return found or (None if restored in (None, LAST) else restored)


def differences(
    there: Configuration, now: Configuration, chosen: Iterable[str] = ()
) -> list[str]:
    """A phrase for each key of ``there``, or of ``chosen``, whose value has changed.

    Other keys that only ``now`` has are fields of newer code, whose default means what
    the older did. Which kernel updates the weights does not count, nor does what none
    of the model's attentions reads.
    """
    old, new = _comparable(there), _comparable(now)
    unread = unread_keys(old, new)
    return [
        f"{key}: {value!r} there, {new.get(key)!r} now"
        for key, value in old.items()
        if new.get(key) != value and key not in unread
    ] + [
        f"{key}: not set there, {new[key]!r} now"
        for key in sorted({*chosen} & (new.keys() - old.keys()))
    ]


def unread_keys(*configurations: Mapping[str, Any]) -> set[str]:
    """Keys of flattened configurations that no attention of their models reads."""
    types = (each.get("model.attention_types") or "" for each in configurations)
    return {f"model.{name}" for name in unused_options(*types)}


def _comparable(configuration: Configuration) -> dict[str, Any]:
    """With fairseq's Adam for the fused one, and today's name for vanilla's layers."""
    values = flattened(configuration)
    if (layers := values.pop("model.num_layers", None)) is not None:
        values.setdefault("model.attention_types", f"softmax*{layers}")
    is_fused = values.get("optimizer._name") == "fused_adam"
    return values | FAIRSEQS_ADAM if is_fused else values


def merged(plans: list[Plan]) -> list[Plan]:
    """One plan for each name, with the steps of all.

    Raises:
        ReproduceError: plans of one name are not of one run.
    """
    by_name: dict[str, Plan] = {}
    for plan in plans:
        first = by_name.setdefault(plan.name, plan)
        found = differences(first.configuration, plan.configuration)
        for what in ("data_fingerprint", "start", "weights"):
            one, other = getattr(first, what), getattr(plan, what)
            found += [f"{what}: {one}, {other}"] if one != other else []
        if found:
            raise ReproduceError(
                f"two runs would have the name {plan.name}: {found[0]}; allowed: names "
                "of rows, configurations and conditions that tell them apart"
            )
        known = {step.name for step in first.steps}
        first.steps += [step for step in plan.steps if step.name not in known]
    return list(by_name.values())

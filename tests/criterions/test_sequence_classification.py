"""The criterion's figures do not depend on how examples are divided."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from fairseq_transnormer.plugin.criterions import SequenceClassificationCriterion

EXAMPLES, CLASSES = 29, 4


def logged(sizes, workers):
    """What fairseq shows of batches of these sizes, ``workers`` of them at a time."""
    torch.manual_seed(0)
    logits = torch.randn(EXAMPLES, CLASSES)
    targets = torch.randint(CLASSES, (EXAMPLES,))
    criterion = SequenceClassificationCriterion(SimpleNamespace())
    outputs, start, total = [], 0, 0.0
    for size in sizes:
        ids = torch.arange(start, start + size)
        sample = {"net_input": {"ids": ids}, "target": targets[ids]}
        sample |= {"ntokens": 3 * size, "nsentences": size}
        loss, count, found = criterion(lambda ids: logits[ids], sample)
        assert count == size
        outputs.append(found)
        total += loss.item()
        start += size
    assert start == EXAMPLES
    assert total == pytest.approx(F.cross_entropy(logits, targets).item() * EXAMPLES)
    with metrics.aggregate(new_root=True) as shown:
        for i in range(0, len(outputs), workers):
            # a worker that has none left repeats a batch, which counts nothing
            group = outputs[i : i + workers]
            idle = {key: value * 0 for key, value in outputs[0].items()}
            group += [idle] * (workers - len(group))
            summed = {key: sum(each[key] for each in group) for key in group[0]}
            SequenceClassificationCriterion.reduce_metrics([summed])
    values = shown.get_smoothed_values()
    accuracy = (logits.argmax(1) == targets).float().mean().item()
    return values, 100 * accuracy, F.cross_entropy(logits, targets).item()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("sizes", [[29], [8, 8, 8, 5], [10, 10, 8, 1]])
def test_accuracy_and_loss_are_those_of_all_examples(sizes, workers):
    values, accuracy, loss = logged(sizes, workers)
    assert values["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    assert values["loss"] == pytest.approx(loss / math.log(2), abs=1e-5)
    assert SequenceClassificationCriterion.logging_outputs_can_be_summed()

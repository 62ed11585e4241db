"""The criterion against sums written out, in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from fairseq_transnormer.plugin.criterions.partial_cross_entropy import (
    PartialCrossEntropy,
)
from tests.binary_data import dictionary_of
from tests.messages import refuses

SYMBOLS = [*"0123456789", "|"]


@pytest.fixture
def task():
    return SimpleNamespace(target_dictionary=dictionary_of(SYMBOLS))


class Logits(torch.nn.Module):
    """A model whose output is given."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self):
        return self.logits, None

    def get_normalized_probs(self, net_output, log_probs):
        return net_output[0].log_softmax(-1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def batch(dictionary, *lines):
    rows = [dictionary.encode_line(x, add_if_not_exist=False).long() for x in lines]
    target = torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=dictionary.pad()
    )
    ntokens = sum(map(len, rows))
    return {"net_input": {}, "target": target, "ntokens": ntokens}


def written_out(model, sample, line_parts):
    """Bits, and right predictions, of the targets at (row, position)."""
    probabilities = model.logits.detach().double().softmax(-1)
    bits, right = 0.0, 0
    for row, position in line_parts:
        symbol = sample["target"][row, position]
        bits -= math.log2(probabilities[row, position, symbol])
        right += int(probabilities[row, position].argmax() == symbol)
    return bits, right


AFTER = {
    # the copies of 3 1 4 and 7, without separators, ends and pads
    "|": [(0, 4), (0, 5), (0, 6), (1, 2)],
    None: [(0, i) for i in range(7)] + [(1, i) for i in range(3)],
}


@pytest.mark.parametrize("separator", AFTER)
def test_loss_is_the_sum_over_what_counts(separator, task):
    sample = batch(task.target_dictionary, "3 1 4 | 3 1 4", "7 | 7")
    torch.manual_seed(0)
    logits = 3 * torch.randn(*sample["target"].shape, len(task.target_dictionary))
    model, criterion = Logits(logits), PartialCrossEntropy(task, separator)
    loss, size, logged = criterion(model, sample)
    bits, right = written_out(model, sample, AFTER[separator])
    assert loss.item() / math.log(2) == pytest.approx(bits, rel=1e-5)
    assert (size, logged["right"]) == (len(AFTER[separator]), right)
    loss.backward()
    moved = model.logits.grad.abs().sum(-1).nonzero().tolist()
    assert moved == [list(each) for each in AFTER[separator]]


def test_batches_of_unequal_size_count_by_their_symbols(task):
    torch.manual_seed(1)
    criterion, outputs, bits, right, count = PartialCrossEntropy(task, "|"), [], 0, 0, 0
    for line in ("3 1 4 1 5 | 3 1 4 1 5", "7 | 7"):
        sample = batch(task.target_dictionary, line)
        length = line.count(" ") // 2
        model = Logits(torch.randn(1, 2 * length + 2, len(task.target_dictionary)))
        outputs.append(criterion(model, sample)[2])
        parts = [(0, length + 1 + i) for i in range(length)]
        found = written_out(model, sample, parts)
        bits, right, count = bits + found[0], right + found[1], count + length
    with metrics.aggregate(new_root=True) as found:
        PartialCrossEntropy.reduce_metrics(outputs)
    values = found.get_smoothed_values()
    assert values["loss"] == pytest.approx(bits / count, abs=1e-5)
    assert values["accuracy"] == pytest.approx(100 * right / count, abs=1e-4)
    assert values["ppl"] == pytest.approx(2 ** (bits / count), abs=0.01)


def test_an_impossible_symbol_outside_leaves_the_loss_finite(task):
    sample = batch(task.target_dictionary, "3 | 3")
    logits = torch.zeros(1, 4, len(task.target_dictionary))
    logits[0, 0, task.target_dictionary.index("3")] = -math.inf
    loss, _, _ = PartialCrossEntropy(task, "|")(Logits(logits), sample)
    assert loss.item() == pytest.approx(math.log(len(task.target_dictionary)))


@pytest.mark.parametrize(
    ("separator", "line"), [("|", "3 1"), ("|", "3 |"), (None, "")]
)
def test_a_line_of_which_nothing_counts(task, separator, line):
    sample = batch(task.target_dictionary, "3 | 3", line)
    model = Logits(torch.zeros(*sample["target"].shape, len(task.target_dictionary)))
    with refuses(ValueError, f"separator={separator!r}", "allowed"):
        PartialCrossEntropy(task, separator)(model, sample)

"""Kernels that are tried before they are taken, and what breaks them."""

import warnings

import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import trials, verdicts
from fairseq_transnormer.ops.block_attention import triton_impl as block_attention
from fairseq_transnormer.ops.kernels import (
    gated_silu,
    lrpe,
    partial_sums,
    residual,
    rms_norm,
)
from fairseq_transnormer.ops.linear_attention import (
    bidirectional,
    launch_table,
    segment_sums,
    step,
    triton_impl,
)

LAUNCHING = (gated_silu, lrpe, partial_sums, residual, rms_norm, block_attention)
LAUNCHING += (bidirectional, triton_impl, step, segment_sums)


def set_multiprocessors(monkeypatch, count):
    monkeypatch.setattr(launch_table, "multiprocessors", lambda device: count)
    launch_table._form.cache_clear()


class Launches(list):
    """Names of the kernels that were launched; what ``change`` does to their results.

    change: (name of the kernel, tensor that it wrote into) -> None, or None.
    """

    def __init__(self, monkeypatch):
        super().__init__()
        self.change = None
        # names with what the kernels were compiled for
        self.compiled = set()
        for module in LAUNCHING:
            monkeypatch.setattr(module, "launch", self._instead_of(module.launch))

    def _instead_of(self, launch):
        def watched(kernel, grid, *arguments, **keywords):
            name = kernel.fn.__name__
            self.append(name)
            constants = {k: str(v) for k, v in keywords.items()}
            types = tuple(
                str(getattr(x, "dtype", type(x).__name__)) for x in flat(arguments)
            )
            self.compiled.add((name, types, tuple(sorted(constants.items()))))
            if self.change is None:
                return launch(kernel, grid, *arguments, **keywords)
            tensors = [x for x in flat(arguments) if isinstance(x, torch.Tensor)]
            before = [x.clone() for x in tensors]
            launch(kernel, grid, *arguments, **keywords)
            for x, old in zip(tensors, before, strict=True):
                if not torch.equal(x, old):
                    self.change(name, x)

        return watched


def flat(arguments):
    for x in arguments:
        if isinstance(x, tuple):
            yield from flat(x)
        else:
            yield x


def next_process():
    """What a process that begins now remembers: nothing but the files."""
    verdicts.forget()


def told(call):
    """What a call returns, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(w.message) for w in caught if w.category is RuntimeWarning]


X = torch.randn(3, 5, 48, generator=torch.Generator().manual_seed(1))


def norm(x=X):
    return ops.rms_norm(x)


ATTENTION = torch.randn(1, 70, 2, 32, generator=torch.Generator().manual_seed(2))
TOKEN = ATTENTION[:, :1]


def linear(x=ATTENTION, **keywords):
    return ops.linear_attention(x, x, x, **{"causal": True} | keywords)[0]


def block(x=ATTENTION, **keywords):
    return ops.block_attention(x, x, x, block_size=16, causal=True, **keywords)[0]


def encoded():
    theta, v = torch.ones(16), torch.eye(32)[0]
    return ops.lrpe(ATTENTION, ATTENTION, theta, v, torch.arange(70))[0]


def after_a_state(op, **keywords):
    qkv, token = (ATTENTION,) * 3, (TOKEN,) * 3
    with torch.no_grad():
        keywords |= {"causal": True, "return_state": True}
        _, state = op(*qkv, **keywords, backend="torch")
        return op(*token, **keywords, initial_state=state)[0]


def added():
    torch.manual_seed(1)
    return ops.dropout_add_norm(X, X, dropout_p=0.5)[1]


def glu():
    weight, bias = X.view(-1, 48)[:5], X[0, 0, :5]
    return ops.gated_linear_unit(
        X, weight, bias, weight, bias, weight.t().contiguous(), X[0, 0]
    )


def trials_of(call):
    """Of what a call launches, without the call itself."""
    with verdicts.collected() as configurations:
        call()
    return [trials.trial(each) for each in dict.fromkeys(configurations)]


def reasons_against(call):
    """What trials say against the kernels that a call launches."""
    found = [each.verdict.reason for each in trials_of(call)]
    assert found
    return [reason for reason in found if reason is not None]


def written(device):
    """The verdicts in the file, by configuration."""
    return verdicts.read(verdicts.path_of(device))


def one_percent(name, x):
    x.mul_(1.01)

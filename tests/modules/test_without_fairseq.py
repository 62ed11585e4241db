"""The ops and modules need no fairseq."""

import subprocess
import sys

PROGRAM = """
import sys
from importlib.machinery import PathFinder

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] not in ('fairseq', 'hydra', 'omegaconf'):
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without()
import torch
from fairseq_transnormer import modules, ops
config = modules.LanguageModelT2Config(
    attention_types='diag,norm', embed_dim=8, num_heads=2, ffn_dim=8
)
model = modules.CausalLanguageModel(config, 20).eval()
logits, states = model(torch.tensor([[3, 4, 5]]), return_states=True)
step, states = model(torch.tensor([[6]]), states, return_states=True)
whole = model(torch.tensor([[3, 4, 5, 6]]))
torch.testing.assert_close(torch.cat((logits, step), 1), whole)
config = modules.EncoderT2Config(
    attention_types='diag,norm', embed_dim=8, num_heads=2, ffn_dim=8
)
assert modules.MaskedLanguageModel(config, 20)(torch.tensor([[3, 4]])).isfinite().all()
x = torch.ones(1, 3, 1, 2)
assert ops.linear_attention(x, x, x, causal=True)[0][0, -1, 0, 0] == 6
assert not [name for name in sys.modules if name.split('.')[0] == 'fairseq']
"""


def test_t2_runs_where_fairseq_is_not_installed():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

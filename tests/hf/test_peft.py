"""LoRA by PEFT, by task type: trained, merged, reloaded."""

import pytest
import torch

from tests.zoo import CAUSAL, ENCODERS

from .loading import WITH_HEADS, features_of, rows

peft = pytest.importorskip("peft", reason="pip install peft")
CASES = {
    "CAUSAL_LM": (CAUSAL[1], None),
    "TOKEN_CLS": (ENCODERS[0], None),
    "SEQ_CLS": ("classifier", None),
    "FEATURE_EXTRACTION": (CAUSAL[0], features_of),
}


@pytest.mark.parametrize("task", CASES)
def test_trained_merged_and_reloaded(task, exports, tmp_path):
    name, load = CASES[task]
    load, folder = load or WITH_HEADS[name], exports[name].folder
    (tokens,) = rows(9)
    tokens = tokens[None]

    def output(model):
        found = model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        return found.last_hidden_state if load is features_of else found.logits

    plain = load(folder, dropout=0.0)
    before = output(plain)
    config = peft.LoraConfig(
        task_type=task, r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0
    )
    model = peft.get_peft_model(plain, config)
    names = {n for n, p in model.named_parameters() if p.requires_grad}
    assert any("lora_" in each for each in names)
    torch.manual_seed(0)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.3)
    for _ in range(3):
        optimizer.zero_grad()
        output(model)[..., 0].float().mean().backward()
        optimizer.step()
    after = output(model).detach()
    assert not torch.allclose(after, before, atol=1e-4)
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(
        load(folder, dropout=0.0), tmp_path / "adapter"
    )
    torch.testing.assert_close(output(again.eval()).detach(), after)
    merged = again.merge_and_unload()
    torch.testing.assert_close(output(merged).detach(), after, rtol=1e-4, atol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    loaded = output(load(tmp_path / "merged")).detach()
    torch.testing.assert_close(loaded, output(merged).detach())

"""Parts that need float32 keep it, however a model comes to be in half precision."""

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing

from fairseq_transnormer.modules import LanguageModelT2Config
from fairseq_transnormer.modules.float32 import float32_modules
from tests.messages import assert_names

SMALL = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 40, "dropout": 0.0}
BF16 = torch.bfloat16


def config_of(hf, attention, **more):
    config = LanguageModelT2Config(attention_types=attention, **SMALL | more)
    return hf.TransNormerConfig.of(config, 44)


@pytest.mark.parametrize("attention", ["norm,norm", "performer", "reformer"])
def test_built_in_half_precision(attention, hf, transformers, tmp_path):
    more = {"performer_features": 8, "reformer_buckets": 8, "reformer_chunk_size": 4}
    config = config_of(hf, attention, **more)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=BF16)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=BF16)
    for each in (model, loaded, model.bfloat16()):
        kept = [x for m in float32_modules(each) for x in m.state_dict().values()]
        assert kept and {x.dtype for x in kept} == {torch.float32}
        assert each.model.embed_tokens.weight.dtype == BF16
        for module in float32_modules(each):
            if hasattr(module, "reflection"):
                assert module.reflection.norm().item() == pytest.approx(1, abs=1e-6)
        with torch.no_grad():
            assert each(torch.arange(4, 24)[None]).logits.isfinite().all()


def work(rank, place, found):
    """One of two workers: error of the logits at the last of 512 positions."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FullyShardedDataParallel,
        MixedPrecision,
        MixedPrecisionPolicy,
        fully_shard,
    )

    from fairseq_transnormer import hf

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    model = hf.TransNormerForCausalLM(config_of(hf, "norm,norm")).eval()
    tokens = torch.randint(4, 44, (1, 512))
    with torch.no_grad():
        expected = model(tokens).logits
    state = {name: x.clone() for name, x in model.state_dict().items()}
    mixed = {"param_dtype": BF16, "reduce_dtype": torch.float32}
    for exact in (True, False):
        mesh = init_device_mesh("cpu", (2,))
        for module in float32_modules(model) if exact else ():
            fully_shard(module, mesh=mesh)
        for module in (*model.model.stack.layers, model):
            fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(**mixed))
        try:
            logits = model(tokens).logits.float()
            error = (logits - expected).abs().mean(-1)[0]
            logits.sum().backward()
            grads = [m.theta.grad.full_tensor() for m in float32_modules(model)]
            found[rank, "exact"] = error[1].item(), error[511].item()
            found[rank, "grads"] = [x.abs().sum().item() for x in grads]
        except ValueError as refused:
            found[rank, "cast"] = str(refused)
        model = hf.TransNormerForCausalLM(config_of(hf, "norm,norm")).eval()
        model.load_state_dict(state)
    mixed = MixedPrecision(**mixed)
    cpu = torch.device("cpu")
    model = FullyShardedDataParallel(
        model, use_orig_params=True, device_id=cpu, mixed_precision=mixed
    )
    try:
        model(tokens)
    except ValueError as refused:
        found[rank, "fsdp1"] = str(refused)
    dist.destroy_process_group()


def test_fsdp_in_mixed_precision(hf, tmp_path):
    """Angles in bfloat16 are off by radians at position 511: refused, with the cure."""
    found = multiprocessing.Manager().dict()
    multiprocessing.start_processes(
        work, (tmp_path / "meet", found), nprocs=2, start_method="fork"
    )
    for rank in range(2):
        near, far = found[rank, "exact"]
        assert 0 < far < 2 * near
        assert all(size > 0 for size in found[rank, "grads"])
        for way in ("cast", "fsdp1"):
            parts = ("LRPE", "bfloat16", "float32_modules", "fully_shard")
            assert_names(found[rank, way], *parts)

"""Peak memory, utilisation and tensorboard's numbers of a real run."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.analysis.training_log import parse_training_log
from fairseq_transnormer.modules.model_flops import layer_flops, output_flops
from fairseq_transnormer.plugin.models import utilisation
from fairseq_transnormer.plugin.models.utilisation import known_peak, training_flops
from tests.models.building import build, dictionary
from tests.tiny_data import write_tiny_data

from .conftest import fairseq_command, training_arguments

ARCH, LENGTH, PEAK = "transnormer_t2_tiny", 64, 0.02


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The records of a run, and the folder of tensorboard's files."""
    folder = tmp_path_factory.mktemp("run")
    write_tiny_data(folder / "data")
    options = {"peak_tflops": PEAK, "tensorboard_logdir": folder / "tensorboard"}
    arguments = training_arguments(ARCH, folder / "save", max_update=6, **options)
    log = fairseq_command("train", folder / "data", "--cpu", *arguments)
    return parse_training_log(log)["train_inner"], folder / "tensorboard"


def task(**settings):
    settings = SimpleNamespace(tokens_per_sample=LENGTH, **settings)
    words = dictionary(60)
    return SimpleNamespace(
        source_dictionary=words, target_dictionary=words, dictionary=words, cfg=settings
    )


def test_the_log_of_a_run(run):
    records, _ = run
    flops = training_flops(build(ARCH), task()) + 3 * 2 * 32 * (60 - 26)
    for record in records[1:]:
        expected = float(record["wps"]) * flops / (PEAK * 1e12)
        assert float(record["mfu"]) == pytest.approx(expected, rel=0.05, abs=1e-4)
        assert 0.05 < float(record["gb_peak"]) < 64
        assert {"loss", "wps", "gnorm"} <= record.keys()


@pytest.mark.parametrize("workers", [1, 4])
def test_of_several_workers_each_has_its_peak(monkeypatch, workers):
    """wps is of all of them together."""
    monkeypatch.setattr(utilisation, "get_data_parallel_world_size", lambda: workers)
    derived = {}
    monkeypatch.setattr(
        utilisation.metrics,
        "log_derived",
        lambda name, f, **_: derived.update({name: f}),
    )
    model = SimpleNamespace(
        update_begins=True, training=True, flops=2e9, peak_tflops=3.0
    )
    utilisation._log_at_the_first_pass(model, ())
    share = derived["mfu"]({"wps": SimpleNamespace(avg=600.0)})
    assert share == round(600 * 2e9 / (workers * 3e12), 4)


def test_tensorboard_has_the_same_numbers(run):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    records, folder = run
    (file,) = (folder / "train_inner").glob("events*")
    data, found, at = file.read_bytes(), {}, 0
    while at < len(data):  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[at : at + 8], "little")
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
        at += 12 + size + 4
    for name in ("loss", "gnorm"):
        for record in records:
            expected = float(record[name])
            assert found[name][int(record["num_updates"])] == pytest.approx(
                expected, abs=1e-3
            )
    assert found["mfu"].keys() == found["gb_peak"].keys() == found["wps"].keys()


def test_layers_and_output_layer_are_counted():
    model = build("vanilla_transformer_tiny")
    forward = layer_flops(model.decoder.model.stack, LENGTH)
    forward += output_flops(32, 30, dense=False)
    assert training_flops(model, task()) == 3 * forward
    # lines are of any length
    assert training_flops(model, task(sample_break_mode="eos")) is None

    model = build("roberta_vanilla_transformer_tiny")
    forward = layer_flops(model.encoder.model.stack, LENGTH)
    forward += output_flops(32, 30, dense=True, predicted=0.15)
    assert training_flops(model, task(mask_prob=0.15)) == 3 * forward


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("NVIDIA H200", torch.bfloat16, 989),
        ("NVIDIA H100 PCIe", torch.bfloat16, 756),
        ("NVIDIA A100-SXM4-80GB", torch.float16, 312),
        ("NVIDIA A100-SXM4-80GB", torch.float32, 19.5),
        ("Tesla V100-SXM2-32GB", torch.float16, 125),
        ("Tesla V100-SXM2-32GB", torch.bfloat16, None),
        ("NVIDIA TITAN Xp", torch.float16, None),
    ],
)
def test_known_peaks(name, dtype, peak, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    monkeypatch.setattr(utilisation, "tf32_is_allowed", lambda: False)
    parameter = SimpleNamespace(device=torch.device("cuda", 0), dtype=dtype)
    assert known_peak(parameter) == peak

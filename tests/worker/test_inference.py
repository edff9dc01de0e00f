"""One process times a model by batch size, in every number format, and scores it."""

import sys

import pytest
import torch

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.live.metrics import LiveMetrics
from nbkit.statistics import latency_timings
from nbkit.store.paths import RunPaths
from nbkit.store.predictions import read_predictions
from nbkit.store.progress import progress
from nbkit.store.stored_runs import StoredRun
from nbkit.worker import inference, models
from nbkit.worker import rank_context as context
from nbkit.worker.inference import infer
from nbkit.worker.quantize import multiply_adds, quantize
from nbkit.worker.rank import Rank
from tests.launch.conftest import plugins, store
from tests.worker.images import CPU, write_classes

__all__ = ["plugins", "store"]


@pytest.fixture
def served(tmp_path):
    """Run an inference in this process, and return its run."""

    def serve(rank_type=Rank, **fields):
        sizes = {"batch_sizes": (1, 4), "batches": 3, "warmup_batches": 1}
        sizes |= fields.pop("inference", {})
        config = ExperimentConfig(
            **{
                "task": "inference",
                "model": "tiny",
                "device": "cpu",
                "image_size": 32,
                "batch_size_per_gpu": 4,
                "inference": sizes,
                "loader_config": {"num_workers": 0},
                **fields,
            }
        )
        root = tmp_path / "store" / "runs" / f"20260101-000000-{len(runs)}"
        root.mkdir(parents=True)
        (root / "config.json").write_text(config.model_dump_json())
        runs.append(root)
        infer(rank_type(RunPaths(root), 0, 0, 1, 1, 0, None), config)
        return StoredRun(root)

    runs = []
    yield serve
    context.log_with(None)


@pytest.fixture
def pictures(tmp_path):
    for split in ("train", "val"):
        write_classes(tmp_path / "pictures" / split, images_per_class=2, classes=4)
    return tmp_path / "pictures"


def test_every_latency_of_every_batch_size_is_kept(served):
    run = served()

    lines = run.metrics("inference")
    assert [line["batch_size"] for line in lines] == [1, 4]
    assert [len(line["times_seconds"]) for line in lines] == [3, 3]
    timing = latency_timings(lines)[4]
    assert timing.images == 12
    assert timing.images_per_second == pytest.approx(
        12 / sum(lines[1]["times_seconds"])
    )
    assert timing.throughput == "batch / mean latency"
    assert timing.p95_seconds is None  # of three passes nobody knows it
    assert timing.peak_memory_bytes == lines[1]["peak_rss_bytes"] > 0
    assert lines[0]["peak_memory_allocated_bytes"] is None
    assert run.worker["completed"]
    assert run.worker["weights"]["source"] == "random"
    assert run.worker["numbers"] == {
        "weights": "fp32",
        "elsewhere": "fp32",
        "batch_norm": None,  # the model has none
    }
    (rank,) = run.worker["ranks"]
    assert rank["images"] == 3 * 1 + 3 * 4


def test_many_latencies_take_several_lines_and_are_counted_once(served, monkeypatch):
    monkeypatch.setattr(inference, "TIMES_PER_EVENT", 2)

    run = served(inference={"batch_sizes": (2,), "batches": 5})

    lines = run.metrics("inference")
    assert [len(line["times_seconds"]) for line in lines] == [2, 2, 1]
    assert latency_timings(lines)[2].passes == 5
    assert latency_timings(lines)[2].images == 10


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_another_format_answers_like_fp32_on_the_same_images(
    served, pictures, precision
):
    fields = {"data": str(pictures), "inference": {"calibration_images": 6}}
    full = served(**fields)
    fields["inference"] = {"calibration_images": 6}
    other = served(precision=precision, **fields)

    reference, said = (read_predictions(run.paths.predictions) for run in (full, other))
    assert said.files == reference.files
    assert len(said.files) == 8
    assert said.scores == pytest.approx(reference.scores, abs=0.02)
    assert said.scores != reference.scores  # it is another format
    (evaluation,) = other.metrics("evaluation")
    assert evaluation["images"] == 8
    numbers = other.worker["numbers"]
    if precision == "int8":
        assert numbers["library"].startswith("torch.ao")
        assert numbers["int8_multiply_add_share"] == 1.0
        assert numbers["calibration_images"] == 6
    else:
        assert numbers["weights"] == f"cast to {precision}"


def test_convolutions_are_computed_in_int8_and_the_share_is_known():
    config = ExperimentConfig(
        task="inference", precision="int8", model="resnet18", image_size=32
    )
    torch.manual_seed(0)
    model = models.build(config, 8).eval()
    images = torch.randn(4, 3, 32, 32)
    with torch.inference_mode():
        expected = model(images)

    quantized, facts = quantize(model, config, CPU, [images])

    kinds = [type(module).__module__ for module in quantized.modules()]
    assert sum("quantized.modules.conv" in kind for kind in kinds) == 20
    assert facts["int8_multiply_add_share"] > 0.99
    with torch.inference_mode():
        found = quantized(images)
    assert (found - expected).abs().max() < 0.2 * expected.abs().max()


def test_multiply_adds_are_those_of_the_paper():
    config = ExperimentConfig(model="resnet50")

    counts, total = multiply_adds(models.build(config, 1000).eval(), 224, CPU)

    # He et al. (2015) print 3.8e9; version 1.5 moves a stride, which adds 8 %.
    assert total == pytest.approx(4.09e9, rel=0.01)
    assert sum(counts.values()) == total


def test_a_model_that_is_mostly_not_int8_is_refused(monkeypatch):
    config = ExperimentConfig(task="inference", precision="int8", model="resnet18")
    config = config.replace(image_size=32)
    model = models.build(config, 8).eval()
    monkeypatch.setattr("nbkit.worker.quantize.multiply_adds", lambda *_: ({}, 10))

    with pytest.raises(ConfigError, match=r"only 0\.\d% of the multiply-adds of res"):
        quantize(model, config, CPU, [])


@pytest.mark.parametrize("gone", ["quantization", "quantization.quantize_fx"])
def test_quantize_without_torch_ao_is_refused(monkeypatch, gone):
    config = ExperimentConfig(task="inference", precision="int8", image_size=16)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
    monkeypatch.setitem(sys.modules, f"torch.ao.{gone}", None)

    with pytest.raises(ConfigError, match=r"has no torch\.ao\.quantization .* 'bf16'"):
        quantize(model, config, CPU, [])


def test_on_a_gpu_int8_is_refused_unless_it_is_compiled(monkeypatch):
    config = ExperimentConfig(task="inference", precision="int8", model="vit_b_16")
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    everything = {"0": 10}, 10
    monkeypatch.setattr("nbkit.worker.quantize.multiply_adds", lambda *_: everything)

    with pytest.raises(
        ConfigError, match=r"with compile=False .* on a GPU .* compile=T"
    ):
        quantize(model, config, torch.device("cuda"), [])


def test_what_cannot_be_served_so_is_refused_with_a_way_out(served):
    with pytest.raises(ConfigError, match="compile=True with precision='int8"):
        served(precision="int8", compile=True)


class Impatient(Rank):
    """Is asked to stop when it has done three passes."""

    def beat(self, step, phase):
        self.stop_requested = step >= 3


def test_a_request_to_stop_ends_it_between_passes(served):
    run = served(Impatient, inference={"batches": 1000})

    assert run.metrics("inference") == []
    assert run.worker["completed"] is False


def test_passes_end_by_count_and_time(tmp_path):
    rank = Rank(RunPaths(tmp_path), 0, 0, 1, 1, 0, None)
    passes = inference.Passes(torch.nn.Identity(), torch.zeros(2, 3, 4, 4), rank)

    # In a row they go on until energy can be read.
    assert passes.in_a_row(5, 0)[0] == 5
    done, seconds = passes.in_a_row(5, 0.05)
    assert done > 5
    assert seconds >= 0.05
    assert len(passes.time_each(10, 3600)) == 10
    assert len(passes.time_each(10, 0)) == 3
    assert len(passes.time_each(2, 0)) == 2


def test_where_time_has_ended_the_passes_only_those_that_were_done_count(
    served, monkeypatch
):
    for name in ("LEAST_SECONDS", "SECONDS_PER_PASS"):
        monkeypatch.setattr(f"nbkit.config.nested.{name}", 0)

    run = served(inference={"batches": 100})

    timings = latency_timings(run.metrics("inference"))
    assert [timing.passes for timing in timings.values()] == [3, 3]
    assert timings[4].images == 12
    (rank,) = run.worker["ranks"]
    assert rank["images"] == 3 * 1 + 3 * 4


def test_a_run_of_latencies_reads_well_wherever_runs_are_read(served):
    run = served()

    rates = [t.images_per_second for t in latency_timings(run.metrics(None)).values()]
    assert run.summary.images_per_second == max(rates)
    assert run.summary.data_wait_share == 0
    newest = progress(run.paths.metrics)["images_per_second"]
    assert newest == pytest.approx(rates[-1], rel=0.01)
    live = LiveMetrics(run.paths.metrics)
    live.read()
    assert live.images_per_second == max(rates)
    assert live.logged["batch_size"] == 4
    assert [point[0] for point in live.series["latency_milliseconds"].points()] == [
        *(1, 4)
    ]


def test_what_a_model_logs_in_passes_that_do_not_count_is_left_out(served, monkeypatch):
    build = models.build

    def talks(config, outputs):
        model = build(config, outputs)
        model.register_forward_hook(lambda *_: nbkit.log({"passes": 1}))
        return model

    monkeypatch.setattr(models, "build", talks)
    run = served()

    plan = run.config.inference
    assert len(run.metrics("log")) == plan.batches * len(plan.batch_sizes)


def test_a_model_logs_as_soon_as_it_is_made(served, monkeypatch):
    build = models.build

    def logs(config, outputs):
        nbkit.log({"outputs": outputs})
        return build(config, outputs)

    monkeypatch.setattr(models, "build", logs)

    assert served().metrics("log")[0]["values"] == {"outputs": 1000}

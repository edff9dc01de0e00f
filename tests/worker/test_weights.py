"""Where a model's weights come from, and what is said of those that do not fit."""

import hashlib
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.store.heartbeat import HeartbeatBoard
from nbkit.store.paths import RunPaths
from nbkit.worker import checkpoint, models, weights
from nbkit.worker.rank import Rank
from nbkit.worker.train import train
from tests.launch.conftest import plugins, store
from tests.waiting import patient, wait_until
from tests.worker.images import config_of

__all__ = ["plugins", "store"]

RUN_ID = "20260101-000000-trained"


@pytest.fixture
def rank(tmp_path):
    return Rank(
        RunPaths(tmp_path / "runs" / "20260102-000000-own"), 0, 0, 1, 1, 0, None
    )


def built(config, outputs=4, seed=1):
    torch.manual_seed(seed)
    return models.build(config, outputs)


@pytest.fixture
def trained(rank):
    """A run beside, with a checkpoint after 7 steps; its model and its id."""
    config = ExperimentConfig(model="tiny", image_size=32)
    root = rank.paths.root.parent / RUN_ID
    root.mkdir(parents=True)
    (root / "config.json").write_text(config.model_dump_json())
    model = built(config, seed=5)
    checkpoint.save(
        RunPaths(root).checkpoints,
        *(7, {"model": model.state_dict(), "step": 7}, {}, 0, 1, lambda: None, 1),
    )
    return model


def taking(named, **fields):
    return ExperimentConfig(
        **{"task": "inference", "model": "tiny", "image_size": 32, **fields},
        weights=named,
    )


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_random_weights_stay_as_the_seed_made_them(rank):
    config = taking("random", seed=3)
    model = built(config)

    origin = weights.load(model, config, rank)

    assert same(model, built(config))
    assert (origin["source"], origin["seed"], origin["sha256"]) == ("random", 3, None)


@pytest.mark.parametrize("size", [2.0**-23, 2.0**-8])
def test_perturbed_weights_differ_by_as_much_as_was_asked_for(rank, size):
    plain = built(taking("random"))
    changed = built(taking("random", weight_perturbation=size))
    torch.manual_seed(5)
    after = torch.rand(3)

    weights.load(plain, taking("random"), rank)
    torch.manual_seed(5)
    weights.load(changed, taking("random", weight_perturbation=size), rank)

    assert torch.equal(torch.rand(3), after)
    each = [[one.double() for one in x.parameters()] for x in (changed, plain)]
    pairs = zip(*each, strict=True)
    moved = torch.cat([(one / other - 1)[other != 0].ravel() for one, other in pairs])
    # The last bit is worth more in one number than in another, at most twice.
    assert moved.abs().min() >= size / 2
    assert moved.abs().max() <= size * 2
    assert 0.4 < (moved > 0).float().mean() < 0.6


def test_a_run_gives_the_weights_of_its_newest_checkpoint(rank, trained):
    config = taking(RUN_ID)
    model = built(config)

    origin = weights.load(model, config, rank)

    assert same(model, trained)
    assert (origin["source"], origin["run_id"], origin["step"]) == ("run", RUN_ID, 7)
    assert origin["sha256"] == weights.fingerprint(trained)
    assert origin["sha256"] != weights.fingerprint(built(config))


@pytest.mark.parametrize("kind", ["folder", "file", "state dict"])
def test_a_checkpoint_is_taken_by_its_path(rank, trained, tmp_path, kind):
    folder = rank.paths.root.parent / RUN_ID / "checkpoints" / "step_00000007"
    torch.save(trained.state_dict(), tmp_path / "mine.pt")
    paths = {
        "folder": folder,
        "file": folder / "state.pt",
        "state dict": tmp_path / "mine.pt",
    }
    config = taking(str(paths[kind]))
    model = built(config)

    origin = weights.load(model, config, rank)

    assert same(model, trained)
    assert origin["source"] == "checkpoint"
    assert origin["step"] == (7 if kind == "folder" else None)


@pytest.mark.parametrize(
    ("classes", "remedy"),
    [(None, "Set num_classes=4"), ([*"abcdefghi"], "Use data with 4 classes, or wei")],
)
def test_load_weights_of_another_number_of_classes(rank, trained, classes, remedy):
    config = taking(RUN_ID)

    with pytest.raises(ConfigError, match=f"4 outputs, but .* has 9. {remedy}"):
        weights.load(built(config, 9), config, rank, classes=classes)


def test_weights_of_another_model_say_whose_they_are(rank, trained):
    config = taking(RUN_ID, model="resnet20")

    with pytest.raises(ConfigError, match=r"do not fit model='resnet20'.*model='tiny'"):
        weights.load(built(config), config, rank)


def test_a_run_without_a_checkpoint_says_how_to_get_one(rank, trained):
    folder = rank.paths.root.parent / RUN_ID / "checkpoints" / "step_00000007"
    (folder / "complete.json").unlink()
    config = taking(RUN_ID)

    with pytest.raises(ConfigError, match=r"no complete checkpoint.*checkpoint_at_end"):
        weights.load(built(config), config, rank)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is neither a run in .* nor a checkpoint"),
        (b"no weights", "cannot be loaded"),
        (
            {"a": Path("/x")},
            r"\(it contains more than tensors, numbers and text\)\. Save the",
        ),
        ({"model": 3}, "has no named weights"),
    ],
)
def test_what_holds_no_weights_is_refused(rank, tmp_path, content, words):
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    config = taking(str(path))

    with pytest.raises(ConfigError, match=words):
        weights.load(built(config), config, rank)


def test_a_resumed_run_keeps_its_own_weights_and_what_is_known_of_them(rank):
    config = taking(RUN_ID)
    model = built(config)
    rank.paths.root.mkdir(parents=True)
    rank.paths.worker.write_text('{"weights": {"source": "run"}}')

    origin = weights.load(model, config, rank, resumed=True)

    assert origin == {"source": "run"}
    assert same(model, built(config))


def test_a_training_begins_with_the_weights_that_it_is_given(rank, trained):
    config = ExperimentConfig(
        model="tiny",
        image_size=32,
        num_classes=4,
        weights=RUN_ID,
        device="cpu",
        batch_size_per_gpu=4,
        steps=2,
        warmup_steps=0,
        learning_rate=1e-12,
        checkpoint_at_end=True,
        tensorboard=False,
    )
    rank.paths.root.mkdir(parents=True)

    train(rank, config)

    state, _ = checkpoint.load(checkpoint.latest(rank.paths.checkpoints), 0, 1)
    for name, value in trained.state_dict().items():
        assert torch.allclose(state["model"][name], value, atol=1e-9)
    assert json.loads(rank.paths.worker.read_text())["weights"]["run_id"] == RUN_ID


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Pretrained weights that were downloaded before; made here, of the real shape."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    # Whoever wants more than there is meets a closed door.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    torch.manual_seed(8)
    source = torchvision.models.squeezenet1_1()
    url = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.url
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(source.state_dict(), folder / url.rpartition("/")[2])
    return source


def test_pretrained_weights_get_a_new_output_layer_for_other_classes(rank, cached):
    config = taking("pretrained", model="squeezenet1_1", image_size=64)
    model = built(config, 4)
    output = model.get_parameter("classifier.1.weight").clone()

    origin = weights.load(model, config, rank)

    assert same(model.features, cached.features)
    assert torch.equal(model.get_parameter("classifier.1.weight"), output)
    assert origin["new_output_layer"] is True
    assert "IMAGENET1K_V1" in origin["name"]

    whole = built(config, 1000)
    assert weights.load(whole, config, rank)["new_output_layer"] is False
    assert same(whole, cached)


def synsets(**others):
    """Return 1,000 sorted names, with those of ImageNet that are looked at."""
    names = [f"n{number:08}" for number in range(1_000)]
    for place, name in weights.SYNSETS.items():
        names[place] = others.get("first", name) if place == 0 else name
    return names


CATEGORIES = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.meta["categories"]


@pytest.mark.parametrize(
    ("classes", "is_new", "said"),
    [
        (None, False, ""),
        (synsets(), False, ""),
        (CATEGORIES, False, ""),
        ([f"{name}, another" for name in CATEGORIES], False, ""),
        ([*map(str, range(1_000))], False, "class names of data='photos' are numbers"),
        ([f"{n:03}" for n in range(1_000)], False, "numbers; those of ImageNet are"),
        (sorted(map(str, range(1_000))), True, "Weights.IMAGENET1K_V1)"),
        (synsets(first="n01440765"), True, "Weights.IMAGENET1K_V1)"),
        (sorted(CATEGORIES), True, "layer (classes differ from those of "),
        ([f"class {n}" for n in range(1_000)], True, "untrained output layer"),
        (["a", "b"], True, "untrained output layer"),
    ],
)
def test_pretrained_outputs_are_kept_for_imagenet_alone(
    rank, cached, capsys, classes, is_new, said
):
    fields = {"model": "squeezenet1_1", "image_size": 64, "data": "photos"}
    model = built(config := taking("pretrained", **fields), 1_000)
    output = model.get_parameter("classifier.1.weight").clone()

    origin = weights.load(model, config, rank, classes=classes)

    assert origin["new_output_layer"] is is_new
    assert same(model.features, cached.features)
    assert same(model, cached) is not is_new
    assert torch.equal(model.get_parameter("classifier.1.weight"), output) is is_new
    assert said in (out := capsys.readouterr().out)
    assert bool(out) is bool(said)


@pytest.mark.parametrize("task", ["inference", "train"])
@pytest.mark.parametrize(
    ("trained_on", "said"),
    [
        (["dark", "light"], None),
        (["dark", "light", "none"], None),
        (["light", "dark"], r"output 0 is 'light' in the weights and 'dark' in the d"),
        (["dark", "lights"], r"output 1 is 'lights' in the weights and 'light' in"),
        (["dark"], r"output 1 is missing in the weights and 'light' in the data\. Use"),
    ],
)
def test_weights_of_other_classes_are_refused(rank, tmp_path, trained_on, said, task):
    config = taking(str(tmp_path / "state.pt"), task=task)
    model = built(config)
    state = {"model": model.state_dict(), "classes": trained_on}
    torch.save(state, tmp_path / "state.pt")

    if said is None:
        weights.load(model, config, rank, classes=["dark", "light"])
        return
    with pytest.raises(ConfigError, match=said):
        weights.load(model, config, rank, classes=["dark", "light"])


def test_weights_without_names_of_classes_say_so(rank, trained, capsys):
    weights.load(built(taking(RUN_ID)), taking(RUN_ID), rank, classes=["a", "b"])

    assert f"weights: {RUN_ID} has no class names" in capsys.readouterr().out


def test_checkpoint_of_a_training_names_its_classes(rank, split):
    config = config_of(split, model="tiny", image_size=32, device="cpu")
    config = config.replace(steps=1, warmup_steps=0, batch_size_per_gpu=4)
    config = config.replace(checkpoint_at_end=True, tensorboard=False)
    rank.paths.root.mkdir(parents=True)

    train(rank, config)

    state, _ = checkpoint.load(checkpoint.latest(rank.paths.checkpoints), 0, 1)
    assert state["classes"] == sorted(path.name for path in (split / "val").iterdir())


@pytest.mark.parametrize("local_rank", [0, 1])
def test_the_first_rank_of_a_node_downloads_and_the_others_find_the_file(
    rank, cached, tmp_path, local_rank
):
    rank.rank = rank.local_rank = local_rank
    (file,) = (tmp_path / "torch" / "hub" / "checkpoints").iterdir()
    away = tmp_path / "away.pth"
    waited = []

    def barrier():
        # The first has its weights by now, of the others nobody has looked before.
        waited.append(local_rank)
        if local_rank:
            away.rename(file)
        else:
            file.unlink()

    if local_rank:
        file.rename(away)
    config = taking("pretrained", model="squeezenet1_1", image_size=64)
    model = built(config, 1000)

    origin = weights.load(model, config, rank, barrier=barrier)

    assert same(model, cached)
    assert waited == [local_rank]
    # Rank 0 writes it down: nobody else needs to read every value for it.
    assert (origin["sha256"] is None) == (local_rank == 1)


def test_weights_that_cannot_be_downloaded_say_where_to_put_the_file(rank, cached):
    config = taking("pretrained", model="resnet18", image_size=64)

    with pytest.raises(RunError, match=r"resnet18-\w+\.pth cannot be loaded.*Put the"):
        weights.load(built(config), config, rank)


def test_a_model_of_nobody_has_no_pretrained_weights(rank):
    config = taking("pretrained", model="resnet20")

    with pytest.raises(ConfigError, match="no pretrained weights for model='resnet20'"):
        weights.load(built(config), config, rank)


class _InParts(http.server.BaseHTTPRequestHandler):
    """Sends a file in two parts, the second one when it is told to; else it ends."""

    def do_GET(self):
        server: Any = self.server
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.content)))
        self.end_headers()
        half = len(server.content) // 2
        self.wfile.write(server.content[:half])
        self.wfile.flush()
        if server.may_continue():
            self.wfile.write(server.content[half:])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(cached, tmp_path, monkeypatch):
    """What sends the weights instead of the internet, under a name with their sum."""
    (file,) = (tmp_path / "torch" / "hub" / "checkpoints").iterdir()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _InParts) as server:
        own: Any = server
        own.content = file.read_bytes()
        file.unlink()
        own.name = f"w-{hashlib.sha256(own.content).hexdigest()[:8]}.pth"
        own.may_continue = lambda: True
        kind = torchvision.models.SqueezeNet1_1_Weights
        at = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(kind, "url", property(lambda _: at + own.name))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield own
        server.shutdown()
        thread.join()


def load_pretrained(rank):
    config = taking("pretrained", model="squeezenet1_1", image_size=64)
    model = built(config, 1000)
    weights.load(model, config, rank)
    return model


def test_a_download_gives_heartbeats(rank, cached, server):
    board = rank.board = HeartbeatBoard.create(1)

    def has_given_one():
        found.append(wait_until(lambda: board.read()[0].beats, "a heartbeat"))
        return True

    found: list[int] = []
    server.may_continue = has_given_one
    model = load_pretrained(rank)
    board.close()

    assert found
    assert same(model, cached)


def test_a_server_that_is_silent_ends_the_download(rank, server, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SILENT_SECONDS", 0.1)
    is_over = threading.Event()
    server.may_continue = lambda: is_over.wait(patient(60)) and False

    with pytest.raises(RunError, match=r"cannot be loaded \(.*timed out\)\. Put the"):
        load_pretrained(rank)

    is_over.set()
    assert not list((tmp_path / "torch" / "hub" / "checkpoints").iterdir())


@pytest.mark.parametrize("fault", ["cut off", "other bytes"])
def test_a_file_of_other_bytes_is_not_kept(rank, server, tmp_path, fault):
    if fault == "cut off":
        server.may_continue = lambda: False
    else:
        server.content = server.content[:-1] + b"!"

    with pytest.raises(RunError, match="its SHA-256 is"):
        load_pretrained(rank)

    assert not list((tmp_path / "torch" / "hub" / "checkpoints").iterdir())

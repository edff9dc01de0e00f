"""Initial weights of a model, and their origin."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import torch
import torchvision
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.reading import expanded
from nbkit.store.heartbeat import Phase
from nbkit.store.paths import RunPaths, is_id
from nbkit.store.record import read_json
from nbkit.worker import checkpoint, models
from nbkit.worker.rank import Rank, say

WeightsState = dict[str, torch.Tensor]

SILENT_SECONDS = 60.0
"""How long a server may send nothing."""
_PART_BYTES = 1 << 20
SYNSETS = {0: "n01440764", 281: "n02123045", 388: "n02510455", 999: "n15075141"}
"""Some of ImageNet's, by their place: tench, tabby, giant panda and toilet tissue."""


def load(
    model: nn.Module,
    config: ExperimentConfig,
    rank: Rank,
    *,
    classes: Sequence[str] | None = None,
    resumed: bool = False,
    barrier: Callable[[], object] = lambda: None,
) -> dict[str, Any] | None:
    """Put the configured weights into a model that has just been built."""
    if resumed:
        return (read_json(rank.paths.worker) or {}).get("weights")
    unknown = ("name", "run_id", "step", "path", "sha256", "seed")
    origin = {**dict.fromkeys(unknown), "new_output_layer": False}
    if config.weights == "random":
        _perturb(model, config)
        return {**origin, "source": "random", "seed": config.seed}
    if config.weights == "pretrained":
        name, renewed = _load_pretrained(model, config, rank, classes, barrier)
        origin |= {"source": "pretrained", "name": name, "new_output_layer": renewed}
    else:
        path, details = _find_file(config.weights, rank.paths.root.parent)
        state, trained_on = _read(path, config.weights)
        _load_strictly(model, state, config, details, classes)
        _check_classes(config, rank, classes, trained_on)
        origin |= {**details, "path": str(path)}
        origin.pop("model", None)
    _perturb(model, config)
    return {**origin, "sha256": fingerprint(model) if rank.rank == 0 else None}


@torch.no_grad()
def _perturb(model: nn.Module, config: ExperimentConfig) -> None:
    """Move every weight up or down by ``weight_perturbation`` of it, at random."""
    # A separate generator: what is drawn after it stays as it was.
    if not config.weight_perturbation:
        return
    # The seed of the weights would make the signs depend on the weights.
    generator = torch.Generator().manual_seed(config.seed + 1)
    for weight in model.parameters():
        signs = torch.randint(0, 2, weight.shape, generator=generator) * 2 - 1
        weight.mul_(1 + config.weight_perturbation * signs.to(weight.device))


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of names and values of a model's weights, in hexadecimal."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        whole = value.detach().cpu().contiguous().reshape(-1)
        digest.update(whole.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _load_pretrained(
    model: nn.Module,
    config: ExperimentConfig,
    rank: Rank,
    classes: Sequence[str] | None,
    barrier: Callable[[], object],
) -> tuple[str, bool]:
    """Load torchvision's weights; return their name and whether an output is new."""
    try:
        weights: Any = torchvision.models.get_model_weights(config.model).DEFAULT  # type: ignore[attr-defined]
    except (ValueError, AttributeError):
        message = (
            f"weights='pretrained': torchvision has no pretrained weights for "
            f"model={config.model!r}. Use a torchvision model, or set weights to "
            "'random', a run or a checkpoint."
        )
        raise ConfigError(message) from None
    if rank.local_rank:
        barrier()
    try:
        if not rank.local_rank:
            _download(weights.url, rank)
        # The builder also renames what older files call otherwise.
        source = torchvision.models.get_model(
            config.model, weights=weights, progress=False
        )
    except (OSError, RuntimeError, HTTPException) as error:
        message = (
            f"weights='pretrained': {weights.url} cannot be loaded ({error}). Put the "
            f"file into {torch.hub.get_dir()}/checkpoints, or use a run or 'random'."
        )
        raise RunError(message) from error
    if not rank.local_rank:
        barrier()
    own = model.state_dict()
    # Outputs that only a training has are left out of the model, and of its weights.
    state = {name: value for name, value in source.state_dict().items() if name in own}
    outputs = _outputs(own, state)
    is_new = outputs is not None or not _are_imagenet(
        config, rank, classes, weights.meta["categories"]
    )
    if is_new:
        # Of a model that has other outputs, shapes tell which weights make them.
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            other = models.build(config, len(weights.meta["categories"]) + 1)
        shapes = {name: value.shape for name, value in other.state_dict().items()}
        state = {
            name: value if value.shape == shapes[name] else own[name]
            for name, value in state.items()
        }
        _log(rank, f"untrained output layer (classes differ from those of {weights})")
    _load_strictly(model, state, config, {"source": "pretrained"})
    return str(weights), is_new


def _are_imagenet(
    config: ExperimentConfig,
    rank: Rank,
    classes: Sequence[str] | None,
    categories: Sequence[str],
) -> bool:
    """Tell whether classes are ImageNet's, in order; synthetic images have none."""
    if classes is None:
        return True
    if len(classes) != len(categories):
        return False
    if all(re.fullmatch(r"n\d{8}", name) for name in classes):
        # Sorted, as all folders are; others than ImageNet's differ in some of these.
        return all(classes[place] == name for place, name in SYNSETS.items())
    if all(name.isdecimal() and int(name) == n for n, name in enumerate(classes)):
        what = f"the class names of data={config.data!r} are numbers"
        _log(rank, f"{what}; those of ImageNet are assumed")
        return True
    # Packs write synonyms, and a number where two classes have one name.
    pairs = zip(classes, categories, strict=True)
    equal = sum(
        name.partition(",")[0].strip().casefold() == category.casefold()
        for name, category in pairs
    )
    return equal > len(categories) / 2


def _check_classes(
    config: ExperimentConfig,
    rank: Rank,
    classes: Sequence[str] | None,
    trained_on: Sequence[str] | None,
) -> None:
    """Refuse weights whose outputs are other classes than those of the data."""
    if classes is None:
        return
    if trained_on is None:
        what = f"{config.weights} has no class names"
        _log(rank, f"{what}; those of the data are assumed")
        return
    for number, name in enumerate(classes):
        trained = trained_on[number] if number < len(trained_on) else None
        if trained != name:
            was = "missing" if trained is None else repr(trained)
            message = (
                f"weights={config.weights!r} and data={config.data!r} differ in class "
                f"names or order: output {number} is {was} in the weights and {name!r} "
                "in the data. Use matching data, or weights='pretrained' or 'random'."
            )
            raise ConfigError(message)


def _log(rank: Rank, text: str) -> None:
    if rank.rank == 0:
        say(f"weights: {text}")


def _download(url: str, rank: Rank) -> None:
    """Put a file where `torch.hub` looks for it, unless it is there."""
    # torch gives no heartbeats meanwhile: over a slow line it looks like a hang. For a
    # silent server it waits for ever.
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # Other runs may download it too.
    partial = file.with_name(f"{file.name}.{uuid.uuid4().hex}.partial")
    request = Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    try:
        with (
            urlopen(request, timeout=SILENT_SECONDS) as answer,
            partial.open("wb") as out,
        ):
            while part := answer.read1(_PART_BYTES):
                rank.beat(rank.step, Phase.STARTING)
                digest.update(part)
                out.write(part)
        named = re.search(r"-([0-9a-f]+)\.", file.name)
        if named and not digest.hexdigest().startswith(named[1]):
            message = f"its SHA-256 is {digest.hexdigest()}, not {named[1]}..."
            raise OSError(message)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _find_file(weights: str, runs: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of some weights, and what is known of their origin."""
    paths = RunPaths(runs / weights) if is_id(weights) else None
    if paths is not None and paths.root.is_dir():
        newest = checkpoint.latest(paths.checkpoints)
        if newest is None:
            message = (
                f"weights={weights!r}: the run has no complete checkpoint. Launch the "
                "run again with checkpoint_at_end=True."
            )
            raise ConfigError(message)
        return newest / "state.pt", {
            "source": "run",
            "run_id": weights,
            "step": checkpoint.step_of(newest),
            "model": (read_json(paths.config) or {}).get("model"),
        }
    path = expanded(weights, "weights")
    file = path / "state.pt" if path.is_dir() else path
    if not file.is_file():
        message = (
            f"weights={weights!r} is neither a run in {runs} nor a checkpoint: {file} "
            "does not exist. Use 'random', 'pretrained', the id of a run, or the path "
            "of a checkpoint."
        )
        raise ConfigError(message)
    step = path.name.startswith("step_") and path.name.removeprefix("step_")
    number = int(step) if step and step.isdigit() else None
    return file.absolute(), {"source": "checkpoint", "step": number}


def _read(path: Path, weights: str) -> tuple[WeightsState, list[str] | None]:
    """Return weights, and the classes that they were trained on where a run says so."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling raises many kinds
        # torch's own words advise to execute what the file says.
        is_code = type(error).__name__ == "UnpicklingError"
        why = "it contains more than tensors, numbers and text" if is_code else error
        message = (
            f"weights={weights!r}: {path} cannot be loaded ({why}). Save the model's "
            "state_dict() with torch.save."
        )
        raise ConfigError(message) from error
    classes = state.get("classes") if isinstance(state, Mapping) else None
    for name in ("model", "state_dict"):
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    if not isinstance(state, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in state.values()
    ):
        message = (
            f"weights={weights!r}: {path} has no named weights. Save the model's "
            "state_dict() with torch.save, or {'model': state_dict}."
        )
        raise ConfigError(message)
    return dict(state), classes if isinstance(classes, list) else None


def _load_strictly(
    model: nn.Module,
    state: WeightsState,
    config: ExperimentConfig,
    origin: Mapping[str, Any],
    classes: Sequence[str] | None = None,
) -> None:
    own = model.state_dict()
    outputs = _outputs(own, state)
    if outputs is not None:
        remedy = f"Set num_classes={outputs[1]}"
        if classes is not None:
            # The data's classes decide, and have to be those of the weights.
            remedy = f"Use data with {outputs[1]} classes, or weights='pretrained' or "
            remedy += "'random'"
        message = (
            f"weights={config.weights!r} have {outputs[1]} outputs, but the model has "
            f"{outputs[0]}. {remedy}."
        )
        raise ConfigError(message)
    lacking, foreign = own.keys() - state.keys(), state.keys() - own.keys()
    other = [n for n in own.keys() & state.keys() if own[n].shape != state[n].shape]
    if lacking or foreign or other:
        first = min([*lacking, *foreign, *other])
        trained = origin.get("model")
        of = f"model={trained!r}" if trained else "the model of the weights"
        message = (
            f"weights={config.weights!r} do not fit model={config.model!r} with "
            f"image_size={config.image_size}: {len(lacking)} missing, {len(foreign)} "
            f"unexpected and {len(other)} differently shaped tensors, such as {first}. "
            f"Use {of} and its training image size."
        )
        raise ConfigError(message)
    model.load_state_dict(state)


def _outputs(own: WeightsState, state: WeightsState) -> tuple[int, int] | None:
    """Return the outputs of model and weights where that alone is different."""
    if own.keys() != state.keys():
        return None
    pairs = {
        (own[name].shape[:1], state[name].shape[:1])
        for name in own
        if own[name].shape != state[name].shape
        and own[name].shape[1:] == state[name].shape[1:]
    }
    more_differences = any(own[n].shape[1:] != state[n].shape[1:] for n in own)
    if len(pairs) != 1 or more_differences:
        return None
    ((here, there),) = pairs
    return here[0], there[0]

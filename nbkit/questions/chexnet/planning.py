"""Plan of the chexnet notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.datasets.cache import NAMED
from nbkit.datasets.find import find
from nbkit.datasets.listing import Contents, Listing, alike_classes
from nbkit.errors import ConfigError
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.chexnet.areas import FEWEST_PATIENTS
from nbkit.questions.study_plan import Plan, PlanValues, below_one
from nbkit.reports.parts import Note, Table
from nbkit.studies.budget import limit_note
from nbkit.studies.devices import Devices, find_devices
from nbkit.studies.parameters import Parameters

SYNTHETIC_MULTILABEL = "synthetic-multilabel"
"""The built-in set of generated images."""

_GPU_DEFAULTS: dict[str, Any] = {
    "model": "densenet121",
    "global_batch_size": 64,
    "image_size": 224,
    "epochs": 10,
    "repeats": 5,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "model": "resnet18",
    "global_batch_size": 32,
    "image_size": 64,
    "epochs": 3,
    "repeats": 2,
}
_GPUS = 2
"""Devices of the data-parallel trainings, where there are so many."""
_WARMUP_STEPS = 10
_CONFIG_FIELDS = (
    *("model", "weights", "precision", "image_size", "crop_area_min", "epochs"),
    *("learning_rate", "label_weighting", "data", "loader", "seed", "engine"),
    *DATA_FAULT_FIELDS,
)


@dataclass(frozen=True, kw_only=True)
class ChexnetPlan(Plan):
    """Planned trainings; a notebook displays the notes and labels."""

    gpus: int
    """Devices of the data-parallel trainings."""
    listing: Listing

    @property
    def notes(self) -> list[str]:
        """Notes for the reader, also on how the data are read.

        Runs record those too, and a report has them from there.
        """
        notes = (*self.listing.notes, *alike_classes(self.listing.contents.classes))
        return [*super().notes, *(f"{note[:1].upper()}{note[1:]}." for note in notes)]

    @property
    def labels(self) -> Table:
        """Number of images with each label in both splits."""
        images = self.listing.contents
        train, evaluation = (
            dict(_positives(images, samples))
            for samples in (images.train, images.evaluation)
        )
        return Table(
            f"Labels: {plural(len(images.train), 'image')} for training, "
            f"{len(images.evaluation):,} for evaluation",
            ["label", "positive training images", "positive evaluation images"],
            [
                [label, f"{train[label]:,}", f"{evaluation[label]:,}"]
                for label in images.classes
            ],
            [*_lacking(images, train, evaluation)],
            {
                "train_positives": [train[label] for label in images.classes],
                "evaluation_positives": [evaluation[label] for label in images.classes],
            },
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note, labels = Note([*self.notes, *limit_note(self.minutes)]), self.labels
        return {
            "text/html": f"{note.to_html()}{labels.to_html()}",
            "text/plain": f"{note.to_text()}\n\n{labels.to_text()}",
        }


def plan(parameters: Parameters) -> ChexnetPlan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or the data have no labels to evaluate.
    DeviceError
        If devices are missing.
    """
    p = parameters
    devices = find_devices(p.device, p.engine, p.gpus or _GPUS)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = p.filled(defaults)
    if p.gpus is None:
        values["gpus"] = 1 if not devices.is_cpu and devices.count == 1 else _GPUS
    _check_numbers(values)
    values["data"] = existing_data(values["data"])
    if values["data"] == "synthetic":
        message = (
            "data='synthetic' has one class per image, not multiple labels. Use "
            f"data={SYNTHETIC_MULTILABEL!r}, or the path of a labels CSV."
        )
        raise ConfigError(message)
    listing = find(
        values["data"],
        missing_labels=values["missing_labels"],
        uncertain_labels=values["uncertain_labels"],
    )
    _check_listing(values, listing)
    arms = {
        plural(gpus, "device"): _config(values, devices, listing, gpus)
        for gpus in dict.fromkeys([1, values["gpus"]])
    }
    largest = max(arms.values(), key=lambda config: config.gpus)
    registry.resolve("engines", largest.engine)().check(largest)
    images = listing.contents
    return ChexnetPlan(
        arms=arms,
        repeats=values["repeats"],
        gpus=values["gpus"],
        prepared={
            "seed_per_repeat": True,
            "arms": list(arms),
            "gpus": values["gpus"],
            "margin": p.auroc_margin,
            "data_kind": listing.kind,
            "train_images": len(images.train),
            "train_positives": dict(_positives(images, images.train)),
            "patients": _numbered(images),
            "num_patients": _num_patients(images),
            "split_by": images.split_by,
        },
        listing=listing,
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what the images are, what is trained, and the conditions."""
    return [
        *plan.smoke_test(
            "AUROCs are valid; throughput and speedup do not apply to GPUs."
        ),
        *_images(plan),
        _what(plan),
        _conditions(plan),
    ]


def _check_numbers(values: Mapping[str, Any]) -> None:
    lines = below_one(values, "gpus", "repeats", "epochs", "global_batch_size")
    if not 0 < values["auroc_margin"] < 0.5:
        lines.append(
            f"auroc_margin={values['auroc_margin']} is not between 0 and 0.5. Use the "
            "largest negligible AUROC difference, such as 0.02."
        )
    batch, gpus = values["global_batch_size"], max(1, values["gpus"])
    if values["loader"] == "tfrecord" and gpus > 1:
        lines.append(
            f"loader='tfrecord' shuffles per device, so the global batches on {gpus} "
            "devices and on 1 device differ. Use another loader or gpus=1."
        )
    if batch > 0 and batch % gpus:
        fitting = [batch - batch % gpus, batch - batch % gpus + gpus]
        lines.append(
            f"global_batch_size={batch} is not divisible by {gpus} devices. Use "
            f"{' or '.join(str(size) for size in fitting if size)}."
        )
    if lines:
        raise ConfigError("\n".join(lines))


def _check_listing(values: Mapping[str, Any], listing: Listing) -> None:
    data, images = values["data"], listing.contents
    if not images.is_multi_label:
        message = (
            f"data={data!r} ({listing.kind}) has one class per image, not multiple "
            "labels. Use a labels CSV, the folder or table of NIH ChestX-ray14, "
            f"or data={SYNTHETIC_MULTILABEL!r}."
        )
        raise ConfigError(message)
    if not images.evaluation:
        message = (
            f"data={data!r} has no evaluation images for the AUROC. Add a column "
            "'split' (train or val) to the labels CSV, or a column 'patient_id' with "
            "two or more patients."
        )
        raise ConfigError(message)
    train, gpus = len(images.train), values["gpus"]
    if train < values["global_batch_size"]:
        largest = train - train % gpus
        remedy = f"global_batch_size={largest} or less, or " if largest else ""
        message = (
            f"data={data!r} has {plural(train, 'training image')}, fewer than "
            f"global_batch_size={values['global_batch_size']}. Use {remedy}more images."
        )
        raise ConfigError(message)


def _config(
    values: Mapping[str, Any],
    devices: Devices,
    listing: Listing,
    gpus: int,
) -> ExperimentConfig:
    # The configuration itself checks what a notebook's parameters say.
    batch = values["global_batch_size"]
    steps = values["epochs"] * (len(listing.contents.train) // batch)
    return ExperimentConfig(
        **{name: values[name] for name in _CONFIG_FIELDS},
        name=f"chexnet {plural(gpus, 'device')}",
        batch_size_per_gpu=batch // gpus,
        gpus=gpus,
        optimizer="adamw",
        # A short training still has something to measure.
        warmup_steps=min(_WARMUP_STEPS, steps // 4),
        evaluation_period_epochs=1,
        device=devices.device_type,
        # Without GPUs there may be fewer CPUs than requested devices.
        oversubscribe=devices.is_cpu,
        tensorboard=values["tensorboard"],
        # What is not finite has no answer to judge.
        stop_on_nonfinite=True,
    )


def _positives(images: Contents, samples: Sequence[Any]) -> Iterable[tuple[str, int]]:
    for number, label in enumerate(images.classes):
        yield label, sum(sample.label[number] for sample in samples)


def _numbered(images: Contents) -> dict[str, int]:
    """Return a number for the patient of every evaluation image.

    Studies are passed on to others, and must not say whose images they are.
    """
    if not images.patients:
        return {}
    numbers: dict[str, int] = {}
    return {
        sample.name: numbers.setdefault(images.patients[sample.name], len(numbers) + 1)
        for sample in images.evaluation
    }


def _lacking(
    images: Contents, train: Mapping[str, int], evaluation: Mapping[str, int]
) -> Iterable[str]:
    """Yield what the images lack to learn a label, or to judge it."""
    patients = _patients_with(images)
    for label in images.classes:
        if train[label] in (0, len(images.train)):
            which = (
                "all training images have" if train[label] else "no training image has"
            )
            yield f"{label}: {which} this label, so it cannot be learned."
        if not evaluation[label]:
            yield f"{label}: no evaluation image has this label, so it has no AUROC."
        elif patients and patients[label] < FEWEST_PATIENTS:
            yield (
                f"{label}: {plural(patients[label], 'evaluation patient')} with this "
                f"label; the mean excludes labels with fewer than {FEWEST_PATIENTS}."
            )


def _patients_with(images: Contents) -> dict[str, int]:
    """Return by label how many evaluation patients have it, if they are known."""
    if not images.patients:
        return {}
    return {
        label: len(
            {
                images.patients[sample.name]
                for sample in images.evaluation
                if not isinstance(sample.label, int) and sample.label[number]
            }
        )
        for number, label in enumerate(images.classes)
    }


def _num_patients(images: Contents) -> dict[str, int] | None:
    """Return the number of patients in each split; None if they are unknown."""
    if not images.patients:
        return None
    splits = {"train": images.train, "evaluation": images.evaluation}
    return {
        split: len({images.patients[sample.name] for sample in samples})
        for split, samples in splits.items()
    }


def _images(plan: PlanValues) -> Iterable[str]:
    """Yield what the images are, and of how many patients."""
    facts, data = plan.facts, _largest(plan).data
    if data == SYNTHETIC_MULTILABEL:
        yield (
            "Generated patterns, not X-rays: label 'bright' is a planted shortcut, "
            "'upper' depends on position, 'coin' cannot be learned, and 'rare' has no "
            "evaluation image."
        )
    elif data in NAMED:
        yield f"Images: built-in set {data}."
    else:
        yield f"Images: {data}, read as {facts['data_kind']}."
    if facts["split_by"]:
        yield f"Train/evaluation split: {facts['split_by']}."
    patients = facts["num_patients"]
    if patients is None:
        yield (
            "No patient_id: images are treated as independent, so CIs are too narrow "
            "if a patient has several images."
        )
        return
    yield (
        f"Patients: {patients['train']:,} for training, {patients['evaluation']:,} for "
        "evaluation, no overlap."
    )


def _largest(plan: PlanValues) -> ExperimentConfig:
    """Return the configuration on the most devices."""
    return max(plan.arms.values(), key=lambda config: config.gpus)


def _what(plan: PlanValues) -> str:
    repeats, gpus, seed = plan.repeats, plan.facts["gpus"], plan.parameters["seed"]
    seeds = f"seed {seed}"
    if repeats > 1:
        seeds = f"seeds {seed} to {seed + repeats - 1}"
    if gpus == 1:
        return (
            f"{plural(repeats, 'training run')} on 1 device ({seeds}); no comparison."
        )
    return (
        f"{2 * repeats} training runs: {repeats} on 1 device and {repeats} on {gpus}, "
        f"paired ({seeds}) with the same initial weights, images and global batches."
    )


def _conditions(plan: PlanValues) -> str:
    config = _largest(plan)
    per_device, gpus = int(config.batch_size_per_gpu), config.gpus
    batch = per_device * gpus
    split = f" ({per_device} per device)" if gpus > 1 else ""
    return (
        f"{config.model}, {config.weights} weights, {config.precision}, "
        f"{config.image_size}x{config.image_size}, global batch "
        f"{batch}{split}, {plural(config.epochs or 0, 'epoch')} of AdamW, peak "
        f"learning rate {config.learning_rate:.3g}, label weighting "
        f"{config.label_weighting}, BatchNorm statistics per device."
    )

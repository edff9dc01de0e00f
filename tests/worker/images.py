"""Small images with something in them, and ways to compare batches."""

import random

import torch

from nbkit.config import ExperimentConfig
from nbkit.datasets.check import inspect_image
from nbkit.datasets.find import find
from nbkit.datasets.manifest import read_manifest, write_manifest
from nbkit.worker.data.augmentation import evaluation_crop, random_crop
from nbkit.worker.data.images import decode_crop
from tests.datasets.images import picture

CPU = torch.device("cpu")
CLASSES = 10
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def write_classes(root, images_per_class=1, classes=CLASSES):
    for label in range(classes):
        (root / f"class {label:02d}").mkdir(parents=True)
        for number in range(images_per_class):
            path = root / f"class {label:02d}" / f"{number}.JPEG"
            picture(100 * label + number).save(path)
    return root


def config_of(root, **fields):
    return ExperimentConfig(data=str(root), **fields)


def names(samples):
    return [samples.name(index) for index in range(len(samples))]


def manifest_of(data, folder):
    """Return the manifest of a data set, made anew."""
    listing = find(str(data))
    write_manifest(listing, listing.fingerprint(), folder / "manifest.jsonl", threads=1)
    return read_manifest(folder / "manifest.jsonl")


def evaluated(data, size):
    """Return the pixels that an evaluation shows of an image file."""
    decoding = inspect_image(data)
    crop = evaluation_crop(decoding.width, decoding.height, size)
    return decode_crop(data, decoding, crop, size)


def cropped(data, size, area, seed):
    """Return the pixels of a random crop of an image file."""
    decoding = inspect_image(data)
    generator = random.Random(seed)
    crop = random_crop(decoding.width, decoding.height, area, generator)
    return decode_crop(data, decoding, crop, size)


def labels_of(batches):
    return [labels.tolist() for _, labels in batches]


def images_by_label(*streams):
    return {
        int(label): image
        for stream in streams
        for images, labels in stream
        for image, label in zip(images, labels, strict=True)
    }


def same(batches, others):
    pairs = list(zip(batches, others, strict=True))
    return all(
        torch.equal(one, other)
        for pair in pairs
        for one, other in zip(*pair, strict=True)
    )

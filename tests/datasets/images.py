"""Small images with something in them, and what a listing says of its images."""

import io
import random

from PIL import Image, ImageDraw

CLASSES = ("apple", "big pear", "cherry")


def picture(number, size=(48, 40)):
    """Return an image with something in it, different for every number."""
    drawn = random.Random(number)
    image = Image.new("RGB", size, tuple(drawn.randrange(256) for _ in range(3)))
    for _ in range(6):
        corner = drawn.randrange(size[0] - 12), drawn.randrange(size[1] - 12)
        colour = tuple(drawn.randrange(256) for _ in range(3))
        opposite = corner[0] + drawn.randrange(12), corner[1] + drawn.randrange(12)
        ImageDraw.Draw(image).rectangle([corner, opposite], fill=colour)
    return image


def jpeg(number):
    """Return the bytes of a JPEG file."""
    stream = io.BytesIO()
    picture(number).save(stream, "JPEG")
    return stream.getvalue()


def write_folder(root, classes=CLASSES, images_per_class=4, space=" "):
    """Fill train/<class>/ and val/<class>/; half as many images for evaluation."""
    for split, share in (("train", 1), ("val", 2)):
        for label, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            for number in range(images_per_class // share):
                suffix = ".JPEG" if number % 2 else ".png"
                path = root / split / name / f"{number}{space}{label}{suffix}"
                picture(1000 * share + 100 * label + number).save(path)
    return root


def write_table(root, rows=None, columns="file,split,sick,view,old"):
    """Write images and a CSV file that gives each of them labels."""
    rows = rows or [
        "b/2.png,train,1,front,0",
        "a/1.png,train,0,side,1",
        "a/3.png,val,1,front,1",
    ]
    for number, row in enumerate(rows):
        path = root / row.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(path)
    table = root / "labels.csv"
    table.write_text("\n".join([columns, *rows]) + "\n")
    return table


def images_of(listing):
    """Return split, name, label and bytes of every image."""
    samples = listing.open()
    everything = [
        (split, sample) for split, part in listing.splits() for sample in part
    ]
    try:
        return {
            (split, sample.name, sample.label, samples.read(number))
            for number, (split, sample) in enumerate(everything)
        }
    finally:
        samples.close()


def names_of(samples):
    return [sample.name for sample in samples]

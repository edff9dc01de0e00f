"""Images for a rank: which, in what order, how they look, and who may not have any."""

import random
import shutil
import subprocess
import sys

import psutil
import pytest
import torch
from PIL import Image, ImageDraw

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker import data
from nbkit.worker.data import Placement, folder
from nbkit.worker.data.images import center_crop, random_crop

# torch warns of more loading processes than CPUs; some tests want several anyway.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

CPU = torch.device("cpu")
CLASSES = 10
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


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


def write_classes(root, images_per_class=1, classes=CLASSES):
    for label in range(classes):
        (root / f"class {label:02d}").mkdir(parents=True)
        for number in range(images_per_class):
            path = root / f"class {label:02d}" / f"{number}.JPEG"
            picture(100 * label + number).save(path)
    return root


@pytest.fixture
def flat(tmp_path):
    """One image for each class, so that its label tells which one it is."""
    return write_classes(tmp_path / "flat")


@pytest.fixture
def split(tmp_path):
    root = tmp_path / "split"
    write_classes(root / "train")
    write_classes(root / "val")
    return root


@pytest.fixture
def opened():
    """Load data that is closed when the test ends."""
    all_data = []

    def load(root, batch_size=2, rank=0, world_size=1, **fields):
        workers = fields.pop("num_workers", 0)
        config = ExperimentConfig(
            data=str(root),
            image_size=32,
            loader_config={"num_workers": workers},
            **fields,
        )
        placement = Placement(CPU, rank, world_size)
        all_data.append(data.load(config, placement, batch_size))
        return all_data[-1]

    yield load
    for one in all_data:
        one.close()


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


# Which images, in what order


def test_ranks_share_an_epoch_and_drop_what_is_left_over(flat, opened):
    ranks = [opened(flat, 2, rank, 2, gradient_accumulation_steps=2) for rank in (0, 1)]

    seen = [labels_of(one.train_batches(0)) for one in ranks]

    everything = [label for batches in seen for batch in batches for label in batch]
    assert len(set(everything)) == len(everything) == 8
    assert [len(batches) for batches in seen] == [2, 2]
    for one in ranks:
        assert (one.steps_per_epoch, one.train_images, one.dropped_images) == (1, 8, 2)


def test_the_order_follows_seed_and_epoch(flat, opened):
    first = labels_of(opened(flat, seed=1).train_batches(0))

    assert labels_of(opened(flat, seed=1).train_batches(0)) == first
    assert labels_of(opened(flat, seed=1).train_batches(1)) != first
    assert labels_of(opened(flat, seed=2).train_batches(0)) != first


@pytest.mark.parametrize("workers", [1, 3])
def test_loading_processes_change_nothing(flat, opened, workers):
    alone, helped = opened(flat), opened(flat, num_workers=workers)

    for epoch in (0, 1):
        assert same(alone.train_batches(epoch), helped.train_batches(epoch))


def test_an_image_looks_the_same_to_any_number_of_ranks(flat, opened):
    alone = images_by_label(opened(flat).train_batches(3))

    shared = images_by_label(
        *(opened(flat, 1, rank, 2).train_batches(3) for rank in (0, 1))
    )

    assert alone.keys() == shared.keys()
    assert all(torch.equal(alone[label], shared[label]) for label in alone)


def test_an_image_looks_different_in_every_epoch(flat, opened):
    one = opened(flat)

    first, second = (images_by_label(one.train_batches(epoch)) for epoch in (0, 1))

    assert not any(torch.equal(first[label], second[label]) for label in first)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_on_in_the_middle_as_if_never_interrupted(flat, opened, workers):
    whole = list(opened(flat, num_workers=workers).train_batches(2))

    assert same(opened(flat, num_workers=workers).train_batches(2, 3), whole[3:])


def test_an_epoch_may_be_left_early_and_the_next_is_whole(flat, opened):
    one = opened(flat, num_workers=2)
    expected = labels_of(opened(flat).train_batches(1))

    next(iter(one.train_batches(0)))

    assert labels_of(one.train_batches(1)) == expected


def test_loading_takes_no_random_numbers_from_the_training(flat, opened):
    state, python_state = torch.get_rng_state(), random.getstate()

    list(opened(flat).train_batches(0))
    list(opened(flat, num_workers=1).train_batches(0))

    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state


@pytest.mark.parametrize(("batch_size", "world_size"), [(3, 1), (4, 2), (2, 3), (3, 3)])
def test_every_evaluation_image_counts_once(split, opened, batch_size, world_size):
    counted, lengths = [], set()
    for rank in range(world_size):
        one = opened(split, batch_size, rank, world_size, evaluation_period_epochs=1)
        assert one.evaluation_images == CLASSES
        batches = list(one.evaluation_batches())
        lengths.add(len(batches))
        for images, labels, mask in batches:
            assert images.shape[0] == labels.shape[0] == mask.shape[0]
            assert ((labels >= 0) & (labels < CLASSES)).all()
            counted += labels[mask].tolist()

    assert sorted(counted) == list(range(CLASSES))
    assert len(lengths) == 1


def test_evaluation_between_two_epochs_disturbs_neither(split, opened):
    expected = labels_of(opened(split).train_batches(1))
    one = opened(split, num_workers=1)

    list(one.train_batches(0))
    evaluated = [labels for _, labels, _ in one.evaluation_batches()]

    assert torch.cat(evaluated).tolist() == list(range(CLASSES))
    assert labels_of(one.train_batches(1)) == expected


def test_a_class_called_train_is_a_class(tmp_path, opened):
    write_classes(tmp_path, classes=2)
    (tmp_path / "class 00").rename(tmp_path / "train")

    one = opened(tmp_path, 1)

    assert (one.num_classes, one.evaluation_images) == (2, 0)


def test_hidden_files_and_folders_are_passed_over(flat, opened):
    (flat / ".ipynb_checkpoints").mkdir()
    (flat / "class 00" / "._0.JPEG").write_bytes(b"not an image")
    (flat / "class 00" / "notes.txt").write_text("not an image")

    assert opened(flat, 1).train_images == CLASSES


def test_images_in_folders_further_down_belong_to_the_class(flat, opened):
    (flat / "class 03" / "more").mkdir()
    picture(1).save(flat / "class 03" / "more" / "1.png")

    labels = torch.cat([labels for _, labels in opened(flat, 1).train_batches(0)])

    assert sorted(labels.tolist()) == sorted([*range(CLASSES), 3])


# How they look


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_batches_are_normalised_and_in_the_configured_layout(flat, opened, layout):
    one = opened(flat, 4, memory_format=layout)

    images, labels = next(iter(one.train_batches(0)))

    bytes_again = (images * DEVIATION + MEAN) * 255
    assert images.dtype == torch.float32
    assert images.shape == (4, 3, 32, 32)
    assert labels.dtype == torch.int64
    assert torch.allclose(bytes_again, bytes_again.round(), atol=1e-3)
    assert bytes_again.max() > 128
    expected = getattr(torch, layout.replace("channels_first", "contiguous_format"))
    assert images.is_contiguous(memory_format=expected)


def test_both_layouts_hold_the_same_images(flat, opened):
    last = opened(flat, memory_format="channels_last").train_batches(0)
    first = opened(flat, memory_format="channels_first").train_batches(0)

    assert same(last, first)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("L", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("LA", "png"), ("P", "png"),
        ("1", "png"), ("RGB", "webp"), ("RGB", "png"), ("RGB", "bmp"), ("RGB", "tiff"),
    ],
)  # fmt: skip
def test_every_kind_of_image_becomes_rgb(tmp_path, mode, suffix):
    colour = (255, 255, 255) if mode == "1" else (200, 100, 40)
    image = Image.new("RGB", (64, 64), colour).convert(mode)
    path = tmp_path / f"image.{suffix}"
    image.save(path, **({"lossless": True} if suffix == "webp" else {}))
    grey = round(0.299 * 200 + 0.587 * 100 + 0.114 * 40)
    expected = (grey,) * 3 if mode in ("L", "LA") else colour

    for pixels in (
        center_crop(path.read_bytes(), 32),
        random_crop(path.read_bytes(), 32, (0.5, 1.0), random.Random(1)),
    ):
        assert pixels.shape == (32, 32, 3)
        assert pixels.dtype == torch.uint8
        difference = pixels.float() - torch.tensor(expected)
        assert difference.abs().mean() < 4  # JPEG, and a palette of 256 colours


def test_a_palette_with_transparency_becomes_rgb(tmp_path):
    image = Image.new("P", (32, 32), 1)
    image.putpalette([0, 0, 0, 200, 100, 40])
    image.save(tmp_path / "p.png", transparency=b"\x00\x80")

    pixels = center_crop((tmp_path / "p.png").read_bytes(), 32)

    assert pixels[0, 0].tolist() == [200, 100, 40]


def test_sixteen_bits_become_the_nearest_eight(tmp_path):
    Image.new("I;16", (32, 32), 40_000).save(tmp_path / "deep.png")

    pixels = center_crop((tmp_path / "deep.png").read_bytes(), 32)

    assert (pixels - 40_000 // 256).abs().max() <= 1


@pytest.mark.parametrize("size", [(48, 40), (100, 30), (300, 400)])
def test_evaluation_shows_what_resizing_and_cutting_shows(tmp_path, size):
    image = picture(3, size)
    image.save(tmp_path / "image.png")
    shorter = round(56 * 256 / 224)
    scale = shorter / min(size)
    width, height = round(size[0] * scale), round(size[1] * scale)
    left, top = (width - 56) / 2, (height - 56) / 2
    expected = image.resize((width, height), Image.Resampling.BILINEAR)
    expected = expected.crop((left, top, left + 56, top + 56))

    pixels = center_crop((tmp_path / "image.png").read_bytes(), 56)

    reference = torch.frombuffer(bytearray(expected.tobytes()), dtype=torch.uint8)
    difference = pixels.float() - reference.view(56, 56, 3)
    assert difference.abs().mean() < 2.5


def gradient(size):
    """Return an image whose red and green tell a pixel's place."""
    width, height = size
    red = Image.linear_gradient("L").rotate(90).resize(size)
    green = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", (red, green, Image.new("L", size)))


def crops(tmp_path, size, area, suffix="png"):
    """Return the width and height of many random crops, as shares, and their flips."""
    path = tmp_path / f"gradient.{suffix}"
    gradient(size).save(path)
    for seed in range(200):
        pixels = random_crop(path.read_bytes(), 16, area, random.Random(seed)).float()
        # Rotated by 90 degrees the gradient falls from left to right.
        across = (pixels[:, 0, 0] - pixels[:, -1, 0]).mean().item()
        down = (pixels[-1, :, 1] - pixels[0, :, 1]).mean().item()
        yield abs(across) / 240, down / 240, across < 0


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_random_crops_keep_to_area_and_aspect_and_flip_half_of_the_time(
    tmp_path, suffix
):
    seen = list(crops(tmp_path, (256, 256), (0.1, 0.5), suffix))

    areas = [width * height for width, height, _ in seen]
    assert 0.06 < min(areas) < 0.15
    assert 0.42 < max(areas) < 0.56
    assert all(0.6 < width / height < 1.6 for width, height, _ in seen)
    assert 70 < sum(flipped for *_, flipped in seen) < 130


def test_the_whole_image_is_taken_where_it_is_asked_for(tmp_path):
    seen = list(crops(tmp_path, (256, 256), (1.0, 1.0)))

    # At full area only the image's own aspect fits; else the middle, which is all.
    assert all(width > 0.95 and height > 0.95 for width, height, _ in seen)


def test_a_very_long_image_is_cropped_in_its_middle(tmp_path):
    Image.new("RGB", (600, 20), (10, 20, 30)).save(tmp_path / "long.png")

    pixels = random_crop(
        (tmp_path / "long.png").read_bytes(), 16, (0.9, 1.0), random.Random(0)
    )

    assert pixels.shape == (16, 16, 3)
    assert pixels[8, 8].tolist() == [10, 20, 30]


# Who may not have any


def test_a_folder_that_does_not_exist_is_named(tmp_path, opened):
    with pytest.raises(ConfigError, match=r"nowhere' does not exist.*'synthetic'"):
        opened(tmp_path / "nowhere")


def test_a_file_is_not_a_data_set(tmp_path, opened):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="is a file; give the path of a folder"):
        opened(tmp_path / "file")


def test_images_without_class_folders_are_refused(tmp_path, opened):
    picture(1).save(tmp_path / "1.png")

    with pytest.raises(ConfigError, match=r"has 0 class folders.*train/<class>/"):
        opened(tmp_path)


def test_a_class_without_images_is_named(flat, opened):
    (flat / "empty one").mkdir()

    with pytest.raises(ConfigError, match=r"1 classes without images \(empty one\)"):
        opened(flat)


def test_an_evaluation_class_that_training_has_not_is_named(split, opened):
    (split / "val" / "class 00").rename(split / "val" / "another")

    with pytest.raises(ConfigError, match=r"1 classes that train/ has not \(another\)"):
        opened(split)


def test_too_few_images_for_one_global_batch_says_how_many_fit(flat, opened):
    with pytest.raises(ConfigError, match=r"10 training images.*24.*use .*=2 or less"):
        opened(flat, 6, world_size=2, gradient_accumulation_steps=2)
    with pytest.raises(ConfigError, match="fewer GPUs"):
        opened(flat, 6, world_size=12)


def test_evaluation_without_evaluation_images_says_where_they_go(flat, opened):
    assert list(opened(flat).evaluation_batches()) == []

    with pytest.raises(ConfigError, match=r"no evaluation images.*val/<class>/"):
        opened(flat, evaluation_period_epochs=1)


def test_fewer_outputs_than_classes_are_refused(flat, opened):
    assert opened(flat, num_classes=CLASSES).num_classes == CLASSES

    with pytest.raises(ConfigError, match="num_classes=9 is below the 10"):
        opened(flat, num_classes=CLASSES - 1)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b"no image at all", "not a format that Pillow knows"),
        ("truncated", "truncated"),
        (None, "No such file"),
    ],
)
def test_an_unreadable_image_is_named(flat, opened, workers, broken, said):
    one = opened(flat, num_workers=workers)
    path = flat / "class 04" / "0.JPEG"
    if broken is None:
        path.unlink()
    else:
        cut = path.read_bytes()[:-50]
        path.write_bytes(cut if broken == "truncated" else broken)

    with pytest.raises(ConfigError, match=f"class 04/0.JPEG cannot be read.*{said}"):
        list(one.train_batches(0))


# Processes


def test_closing_in_the_middle_of_an_epoch_ends_the_loading_processes(split, opened):
    one = opened(split, num_workers=2)
    training, evaluating = one.train_batches(0), one.evaluation_batches()
    next(training)
    next(evaluating)
    assert len(psutil.Process().children()) == 4

    one.close()
    one.close()

    assert psutil.Process().children() == []


def test_loading_processes_stay_for_the_next_epoch(flat, opened):
    one = opened(flat, num_workers=1)

    list(one.train_batches(0))
    before = psutil.Process().children()
    list(one.train_batches(1))

    assert len(before) == 1
    assert psutil.Process().children() == before


def test_a_request_to_stop_reaches_the_training_process_alone(flat, opened):
    expected = labels_of(opened(flat).train_batches(0))
    one = opened(flat, num_workers=2)
    stream = one.train_batches(0)
    seen = [next(stream)[1].tolist()]

    workers = [str(process.pid) for process in psutil.Process().children()]
    for name in ("TERM", "INT"):
        subprocess.run(["kill", f"-{name}", *workers], check=True)

    assert seen + labels_of(stream) == expected


def test_a_program_that_forgets_to_close_still_ends(flat):
    program = f"""
import torch
from nbkit.config import ExperimentConfig
from nbkit.worker import data

config = ExperimentConfig(data={str(flat)!r}, loader_config={{"num_workers": 1}})
one = data.load(config, data.Placement(torch.device("cpu"), 0, 1), 2)
stream = one.train_batches(0)
next(stream)
"""

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_ranks_share_the_usable_cpus():
    def workers(cpus, **fields):
        return folder._num_workers(ExperimentConfig(**fields), cpus)

    assert workers(64.0, gpus=4) == 15
    assert workers(1.5, gpus=4) == 1
    assert workers(16.0, gpus=4, cpu_binding="cores") == 15
    assert workers(256.0, gpus=1) == 32
    assert workers(64.0, loader_config={"num_workers": 0}) == 0


# The record


def test_the_fingerprint_tells_data_sets_apart_and_copies_not(split, tmp_path, opened):
    original = opened(split).fingerprint
    shutil.copytree(split, tmp_path / "copy")
    files = [path for path in split.rglob("*") if path.is_file()]

    copy = opened(tmp_path / "copy").fingerprint

    assert original["source"] == str(split)
    assert original["files"] == len(files) == 2 * CLASSES
    assert original["bytes"] == sum(path.stat().st_size for path in files)
    assert copy["sha256"] == original["sha256"]
    (tmp_path / "copy" / "val" / "class 00" / "0.JPEG").write_bytes(b"another size")
    assert opened(tmp_path / "copy").fingerprint["sha256"] != original["sha256"]


def test_the_record_says_what_is_left_out_and_who_loads(flat, opened):
    described = opened(flat, 4, num_workers=2).describe()

    assert described["train_images"] == 8
    assert described["dropped_images"] == 2
    assert described["num_workers"] == 2


# Synthetic images


def synthetic(opened, batch_size=4, rank=0, world_size=1, **fields):
    values = {"images_per_epoch": 50, "num_classes": 7, **fields}
    return opened("synthetic", batch_size, rank, world_size, **values)


def test_synthetic_batches_follow_seed_rank_epoch_and_number(opened):
    def batches(epoch=1, first_batch=0, **fields):
        return list(synthetic(opened, **fields).train_batches(epoch, first_batch))

    whole = batches()
    assert same(batches(), whole)
    assert same(batches(first_batch=5), whole[5:])
    assert not same(batches(seed=1), whole)
    assert not same(batches(rank=1, world_size=2), whole[:6])
    assert not torch.equal(whole[0][0], whole[1][0])


def test_synthetic_batches_cost_no_copy(opened):
    images = [images for images, _ in synthetic(opened).train_batches(0)]

    assert len(images) == 12
    assert len({image.data_ptr() for image in images}) < 12


def test_synthetic_images_are_the_same_in_both_layouts(opened):
    last, first = (
        next(iter(synthetic(opened, memory_format=layout).train_batches(0)))[0]
        for layout in ("channels_last", "channels_first")
    )

    assert torch.equal(last, first)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert first.is_contiguous()
    assert last.shape == (4, 3, 32, 32)


def test_synthetic_labels_are_within_the_classes(opened):
    one = synthetic(opened)

    labels = torch.cat([labels for _, labels in one.train_batches(0)])

    assert one.num_classes == 7
    assert 0 <= labels.min() < labels.max() < 7
    assert synthetic(opened, num_classes=None).num_classes == 1_000


@pytest.mark.parametrize("world_size", [1, 3])
def test_synthetic_evaluation_has_a_twentieth_of_the_images(opened, world_size):
    counts = [
        sum(
            int(mask.sum())
            for *_, mask in synthetic(
                opened, 4, rank, world_size, images_per_epoch=220
            ).evaluation_batches()
        )
        for rank in range(world_size)
    ]

    assert sum(counts) == 11


def test_a_synthetic_epoch_shorter_than_a_batch_is_refused(opened):
    one = synthetic(opened, images_per_epoch=9)
    assert (one.steps_per_epoch, one.train_images, one.dropped_images) == (2, 8, 1)

    with pytest.raises(ConfigError, match=r"images_per_epoch=9 is less than .* 12"):
        synthetic(opened, world_size=3, images_per_epoch=9)

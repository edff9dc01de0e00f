"""Inputs of the ``dali`` loader: read-ahead files, and Pillow as a fallback."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from nbkit.datasets.samples import Decoding, Samples
from nbkit.plural import plural
from nbkit.worker.data.augmentation import Augmentation
from nbkit.worker.data.image_data import NO_IMAGE, Requests, read_image
from nbkit.worker.data.images import decode_whole, naming
from nbkit.worker.data.window import PixelWindow, Turn
from nbkit.worker.rank import say

# A network file system answers in a millisecond; several answers are awaited together.
_READ_THREADS = 16
_IMAGES_PER_TASK = 8

_NAMED = 3


class ShownImage(NamedTuple):
    """One image, and which part of it is shown."""

    number: int
    """Its place in the manifest."""
    data: bytes
    """The file, or bare pixels."""
    is_bare: bool
    window: PixelWindow
    turn: Turn


class Images:
    """Reads images; several threads use it concurrently."""

    def __init__(
        self,
        samples: Samples,
        augmentation: Augmentation,
        refused: set[int],
        *,
        on_gpu: bool = False,
    ) -> None:
        self._samples = samples
        self._augmentation = augmentation
        # Places of plain images that nvImageCodec does not decode; it grows.
        self._refused = refused
        self._on_gpu = on_gpu

    def read(self, epoch: int | None, indices: list[int]) -> list[ShownImage]:
        """Return images."""
        return [self._read(epoch, index) for index in indices]

    def without_refused(
        self, batches: list[list[ShownImage]], why: str
    ) -> list[list[ShownImage]] | None:
        """Return batches with the pixels of those images that DALI cannot decode."""
        # DALI does not say which they are: the same decoder is asked outside of it.
        # Where only the decoder of the GPU refuses one, Pillow decodes all. None if no
        # image is refused.
        encoded = [image for batch in batches for image in batch if not image.is_bare]
        numbers = {image.number for image in encoded if self._is_refused(image)}
        count = len(numbers - self._refused)
        problem = f"nvImageCodec cannot decode {plural(count, 'image')}"
        if not numbers and self._on_gpu:
            numbers = {image.number for image in encoded}
            problem = (
                f"DALI ({why.strip().partition(chr(10))[0]}) cannot decode at least "
                f"one of {len(numbers):,} images"
            )
        if not numbers:
            return None
        new = sorted(numbers - self._refused)
        self._refused |= numbers
        replaced = [
            [
                self._bare(image)
                if image.number in numbers and not image.is_bare
                else image
                for image in batch
            ]
            for batch in batches
        ]
        if new:
            first = ", ".join(self._samples.name(number) for number in new[:_NAMED])
            more = f" and {len(new) - _NAMED:,} more" if len(new) > _NAMED else ""
            say(f"data: {problem}; Pillow is used instead: {first}{more}")
        return replaced

    def _is_refused(self, image: ShownImage) -> bool:
        try:
            from nbkit.worker.data.decode import decode_window
        except ImportError:
            return False  # a machine for which there is no wheel of it
        decoding = self._samples.decoding(image.number)
        return decode_window(image.data, decoding, image.window) is None

    def _bare(self, image: ShownImage) -> ShownImage:
        decoding = self._samples.decoding(image.number)
        with naming(self._samples, image.number):
            data = _bare_pixels(image.data, decoding)
        return image._replace(data=data, is_bare=True)

    def _read(self, epoch: int | None, index: int) -> ShownImage:
        decoding = self._samples.decoding(index)
        crop = self._augmentation.crop(decoding, epoch, index)
        is_bare = not decoding.is_plain or index in self._refused
        with naming(self._samples, index):
            # DALI would show a file that has been cut off below the crop.
            data = read_image(self._samples, index)
            if is_bare:
                data = _bare_pixels(data, decoding)
        return ShownImage(
            index,
            data,
            is_bare,
            PixelWindow.of(decoding, crop, self._augmentation.size),
            Turn.of(decoding.orientation, crop.flip),
        )


def read_ahead(
    images: Images, requests: Requests, depth: int
) -> Generator[list[ShownImage], None, None]:
    """Yield the images of every request that shows any, in order."""
    pool = ThreadPoolExecutor(_READ_THREADS)
    pending: deque[list[Future[list[ShownImage]]]] = deque()
    try:
        for epoch, indices in requests:
            shown = [index for index in indices if index != NO_IMAGE]
            tasks = range(0, len(shown), _IMAGES_PER_TASK)
            if shown:
                pending.append(
                    [
                        pool.submit(
                            images.read, epoch, shown[start : start + _IMAGES_PER_TASK]
                        )
                        for start in tasks
                    ]
                )
            if len(pending) > depth:
                yield _joined(pending.popleft())
        while pending:
            yield _joined(pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _joined(tasks: list[Future[list[ShownImage]]]) -> list[ShownImage]:
    return [image for task in tasks for image in task.result()]


def _bare_pixels(data: bytes, decoding: Decoding) -> bytes:
    """Return an image as a file in the simplest format there is: PPM."""
    pixels = decode_whole(data, decoding)
    header = f"P6 {pixels.width} {pixels.height} 255\n"
    return header.encode() + pixels.tobytes()

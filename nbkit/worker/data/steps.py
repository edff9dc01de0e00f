"""Steps of an input pipeline: one small generator each, as in tf.data.

Each takes a stream and gives another one. What is parallel keeps its order, so that an
epoch is the same with any number of threads. The threads are of this process: reading
and decoding do not hold Python's lock.

References
----------
https://www.tensorflow.org/guide/data_performance
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()


def shuffle(
    stream: Iterable[T], buffer_size: int, generator: random.Random
) -> Generator[T, None, None]:
    """Yield elements in random order, each drawn from as many as the buffer holds."""
    stream = iter(stream)
    held = list(islice(stream, buffer_size))
    for element in stream:
        place = generator.randrange(len(held))
        yield held[place]
        held[place] = element
    generator.shuffle(held)
    yield from held


def interleave(
    files: Iterable[Iterable[T]], cycle_length: int
) -> Generator[T, None, None]:
    """Yield from several files in turn; the next file replaces one that ends."""
    files = iter(files)
    taking_turns = deque(iter(file) for file in islice(files, cycle_length))
    while taking_turns:
        element = next(taking_turns[0], _END)
        if element is not _END:
            yield element
            taking_turns.rotate(-1)
        elif (following := next(files, _END)) is not _END:
            taking_turns[0] = iter(following)
        else:
            taking_turns.popleft()


def parallel_map(
    function: Callable[[T], R], stream: Iterable[T], threads: int
) -> Generator[R, None, None]:
    """Yield the result of a function for each element, in order."""
    if not threads:
        yield from map(function, stream)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for element in stream:
            waiting.append(pool.submit(function, element))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def prefetch(stream: Iterable[T], ahead: int) -> Generator[T, None, None]:
    """Yield the same elements, some of which a thread prepares ahead."""
    stream = iter(stream)
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(next, stream, _END) for _ in range(ahead))
        try:
            while (element := waiting.popleft().result()) is not _END:
                waiting.append(pool.submit(next, stream, _END))
                yield element
        finally:
            pool.shutdown(cancel_futures=True)


def batch(
    stream: Iterable[torch.Tensor],
    batch_size: int,
    new_batch: Callable[[], torch.Tensor],
) -> Generator[torch.Tensor, None, None]:
    """Yield whole batches of images; the remainder is dropped."""
    stream = iter(stream)
    while len(images := list(islice(stream, batch_size))) == batch_size:
        yield torch.stack(images, out=new_batch())


def map_and_batch(
    function: Callable[[T], torch.Tensor],
    stream: Iterable[T],
    batch_size: int,
    new_batch: Callable[[], torch.Tensor],
    threads: int,
) -> Generator[torch.Tensor, None, None]:
    """Yield whole batches, each filled in place by several threads."""
    part_size = -(-batch_size // max(1, threads))

    def parts() -> Iterator[tuple[torch.Tensor, int, list[T]]]:
        elements = iter(stream)
        while len(whole := list(islice(elements, batch_size))) == batch_size:
            pixels = new_batch()
            for start in range(0, batch_size, part_size):
                yield pixels, start, whole[start : start + part_size]

    def fill(part: tuple[torch.Tensor, int, list[T]]) -> torch.Tensor | None:
        pixels, start, elements = part
        end = start + len(elements)
        torch.stack([function(element) for element in elements], out=pixels[start:end])
        return pixels if end == batch_size else None

    for pixels in parallel_map(fill, parts(), threads):
        if pixels is not None:
            yield pixels

"""Single steps of an input pipeline: what comes out, in which order, by whom."""

import random
import threading
from collections import Counter

import pytest
import torch

from nbkit.worker.data import steps


def pixel(number):
    return torch.full((1, 1, 3), number, dtype=torch.uint8)


def memory(batch_size):
    return lambda: torch.empty((batch_size, 1, 1, 3), dtype=torch.uint8)


def test_shuffle_keeps_every_element_and_moves_none_further_ahead_than_the_buffer():
    shuffled = list(steps.shuffle(range(100), 10, random.Random(1)))

    assert sorted(shuffled) == list(range(100))
    assert shuffled != list(range(100))
    assert all(number <= place + 10 for place, number in enumerate(shuffled))
    assert shuffled == list(steps.shuffle(range(100), 10, random.Random(1)))


@pytest.mark.parametrize("buffer_size", [10, 100])
def test_what_the_buffer_holds_at_the_end_comes_in_random_order_too(buffer_size):
    shuffled = list(steps.shuffle(range(100), buffer_size, random.Random(1)))

    # Of ten in their order, or in that in which they were put there, one in millions.
    held = sorted(shuffled[-buffer_size:])
    assert shuffled[-buffer_size:] != held
    random_state = random.Random(1)
    kept = list(range(buffer_size))
    for element in range(buffer_size, 100):
        kept[random_state.randrange(buffer_size)] = element
    assert sorted(kept) == held
    assert shuffled[-buffer_size:] != kept


@pytest.mark.parametrize("buffer_size", [1, 5, 50])
def test_a_buffer_of_any_size_will_do(buffer_size):
    assert sorted(steps.shuffle("abcde", buffer_size, random.Random(1))) == [*"abcde"]


def test_interleave_takes_turns_and_replaces_a_file_that_ends():
    files = ["ab", "cdef", "", "gh"]

    assert "".join(steps.interleave(files, 2)) == "acbdgehf"
    assert "".join(steps.interleave(files, 1)) == "abcdefgh"
    assert "".join(steps.interleave([], 3)) == ""


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_parallel_map_keeps_the_order(threads):
    assert list(steps.parallel_map(str, range(9), threads)) == [*"012345678"]


def test_a_parallel_map_has_as_many_in_work_as_it_has_threads():
    together = threading.Barrier(3)

    # Each waits for two others: in turn, none would ever come back.
    found = list(steps.parallel_map(lambda _: together.wait(60), range(6), 3))

    assert Counter(found) == {0: 2, 1: 2, 2: 2}


def test_prefetch_prepares_as_many_ahead_as_it_is_told_and_no_more():
    made, full = [], threading.Event()

    def stream():
        for number in range(10):
            made.append(number)
            if number == 3:
                full.set()
            yield number

    ahead = steps.prefetch(stream(), 3)
    assert next(ahead) == 0

    # The first was taken, so a fourth takes its place; nobody asks for a fifth.
    assert full.wait(60)
    assert made == [0, 1, 2, 3]
    assert list(ahead) == list(range(1, 10))


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 7])
def test_map_and_batch_is_map_and_then_batch(threads):
    fused = steps.map_and_batch(pixel, range(11), 4, memory(4), threads)
    mapped = steps.parallel_map(pixel, range(11), threads)

    for one, other in zip(fused, steps.batch(mapped, 4, memory(4)), strict=True):
        assert one.flatten().tolist() == other.flatten().tolist()
        assert one.shape == (4, 1, 1, 3)


@pytest.mark.parametrize("made", [1, 5])
def test_what_is_left_early_leaves_no_thread_behind(made):
    before = set(threading.enumerate())
    stream = steps.parallel_map(pixel, range(100), 3)
    batches = steps.prefetch(steps.batch(stream, 2, memory(2)), 2)

    for _ in range(made):
        next(batches)
    batches.close()
    stream.close()

    # Threads of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("ahead", [1, 4])
def test_an_error_arrives_where_its_element_would_have(ahead):
    def broken(number):
        if number == 2:
            message = "no image"
            raise ValueError(message)
        return number

    stream = steps.prefetch(steps.parallel_map(broken, range(9), 2), ahead)

    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ValueError, match="no image"):
        next(stream)

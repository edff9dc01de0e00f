"""A plug-in with loaders whose images come from far away: every read takes a while.

What they deliver depends on how many reads are under way at once, and not on how fast
or how busy the processors are.
"""

import functools
import multiprocessing
import time

READ_SECONDS = 0.01


def slow_storage_torch(config, manifest, placement, batch_size):
    from nbkit.worker.data import torch_loader

    torch_loader.read_image = _late(torch_loader.read_image)
    return torch_loader.load(config, manifest, placement, batch_size)


def slow_storage_tfrecord(config, manifest, placement, batch_size):
    from nbkit.worker.data import tfrecord

    tfrecord.read_image = _late(tfrecord.read_image)
    return tfrecord.load(config, manifest, placement, batch_size)


def _late(read):
    @functools.wraps(read)
    def late(samples, index):
        time.sleep(READ_SECONDS)
        return read(samples, index)

    return late


def stuck_storage_torch(config, manifest, placement, batch_size):
    """Its file server answers some images, and then no more."""
    from nbkit.worker.data import torch_loader

    torch_loader.read_image = _stuck(torch_loader.read_image)
    return torch_loader.load(config, manifest, placement, batch_size)


def _stuck(read):
    count = 0

    @functools.wraps(read)
    def stuck(samples, index):
        nonlocal count
        count += 1
        while count > 40:
            time.sleep(READ_SECONDS)
        return read(samples, index)

    return stuck


def forkserver_torch(config, manifest, placement, batch_size):
    """Python's own way to start processes is by a server, as from Python 3.14 on."""
    from nbkit.worker.data import torch_loader

    multiprocessing.set_start_method("forkserver", force=True)
    return torch_loader.load(config, manifest, placement, batch_size)

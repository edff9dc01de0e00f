"""An input pipeline as a list of steps, in tf.data's terms.

A pipeline is a text of names, such as ``list,shard,interleave,map_and_batch``. Here is
only which rows make sense; what the steps do is in `nbkit.worker.data.steps`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.registry import suggest

MOST_LEFT_OUT = 0.05
"""Of the images, that files of unequal size may leave out of an epoch: every rank shows
as many as the one that has the fewest."""

PIPELINES = {
    "chexnet_old": "list,read,map,shard,shuffle,batch,prefetch",
    "chexnet_new": (
        "list,shard,shuffle,interleave,prefetch,shuffle,map_and_batch,prefetch"
    ),
}
"""The two of Dell's report on CheXNet, without ``repeat``: the training's epochs do
that. In the new one ``list`` is two steps of the report, which lists the files and then
makes a data set of their names.
https://www.dell.com/support/kbdoc/en-us/000124384/optimization-techniques-for-training-chexnet-on-dell-c4140-with-nvidia-v100-gpus"""

_MAKES = {
    "list": {"nothing": "files"},
    "shard": {"files": "files", "records": "records", "images": "images"},
    "shuffle": {"files": "files", "records": "records", "images": "images"},
    "read": {"files": "records"},
    "interleave": {"files": "records"},
    "map": {"records": "images"},
    "batch": {"images": "batches"},
    "map_and_batch": {"records": "batches"},
    "prefetch": {"records": "records", "images": "images", "batches": "batches"},
}
"""What each step makes of what it is given."""


def pipeline_steps(pipeline: str) -> tuple[str, ...]:
    """Return the steps of a pipeline."""
    row = PIPELINES.get(pipeline, pipeline)
    steps = tuple(step.strip() for step in row.split(","))
    have = "nothing"
    for step in steps:
        takes = _MAKES.get(step)
        if takes is None:
            near = suggest(step, [*PIPELINES, *_MAKES])
            message = (
                f"{step!r} is not a step. Use {', '.join(_MAKES)}, or a pipeline: "
                f"{' or '.join(PIPELINES)}{'.' * bool(near)}{near}"
            )
            raise ValueError(message)
        if (have == "nothing") != (step == "list"):
            message = (
                "must have 'list' as its first step, and nowhere else. Put one 'list' "
                "step first"
            )
            raise ValueError(message)
        if have not in takes:
            following = [name for name, inputs in _MAKES.items() if have in inputs]
            message = (
                f"{step!r} requires {' or '.join(takes)}, but its input is {have}. "
                f"Steps that take {have}: {', '.join(following)}"
            )
            raise ValueError(message)
        have = takes[have]
    if have != "batches":
        end = {"files": "read,map,batch", "records": "map_and_batch"}.get(have, "batch")
        end = end if "shard" in steps else f"shard,{end}"
        message = f"outputs {have}, but training requires batches. Append {end!r}"
        raise ValueError(message)
    if steps.count("shard") != 1:
        message = f"has {steps.count('shard')} 'shard' steps. Use exactly one"
        raise ValueError(message)
    return steps


def images_of_every_rank(
    steps: Sequence[str], images_in_files: Sequence[int], ranks: int, data: str
) -> int:
    """Return how many images every rank is sure to have in every epoch."""
    images = sum(images_in_files)
    before = steps[: steps.index("shard")]
    if "read" in before or "interleave" in before:
        return images // ranks
    remedy = (
        "Use fewer ranks, pack smaller files (shard_megabytes), or put 'shard' after "
        "'read' or 'interleave' in loader_config.pipeline."
    )
    if len(images_in_files) < ranks:
        message = (
            f"data={data!r} has {plural(len(images_in_files), 'TFRecord file')} for "
            f"training, but each of {ranks} ranks needs at least one. {remedy}"
        )
        raise ConfigError(message)
    if "shuffle" in before:
        # Other files in every epoch: no rank ever has fewer images than these.
        fewest = sum(sorted(images_in_files)[: len(images_in_files) // ranks])
    else:
        fewest = min(sum(images_in_files[rank::ranks]) for rank in range(ranks))
    left_out = 1 - fewest * ranks / images
    if left_out > MOST_LEFT_OUT:
        message = (
            f"data={data!r} has {images:,} training images in {len(images_in_files)} "
            f"files. With whole files per rank, each of {ranks} ranks reads {fewest:,} "
            f"images, and {left_out:.1%} of all images are skipped (limit "
            f"{MOST_LEFT_OUT:.0%}). {remedy}"
        )
        raise ConfigError(message)
    return fewest

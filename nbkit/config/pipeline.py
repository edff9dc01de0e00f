"""An input pipeline as a row of steps, as TensorFlow's tf.data writes one down.

A pipeline is a text of names, such as ``list,shard,interleave,map_and_batch``. Here is
only which rows make sense; what the steps do is in `nbkit.worker.data.steps`.
"""

from __future__ import annotations

from nbkit.registry import suggest

__all__ = ["PIPELINES", "pipeline_steps"]

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
    """Return the steps of a pipeline.

    Parameters
    ----------
    pipeline
        A name from `PIPELINES`, or steps with commas between them.

    Raises
    ------
    ValueError
        If they do not lead from files to batches; the text says which step does not
        fit.
    """
    row = PIPELINES.get(pipeline, pipeline)
    steps = tuple(step.strip() for step in row.split(","))
    have = "nothing"
    for step in steps:
        takes = _MAKES.get(step)
        if takes is None:
            known = ", ".join([*PIPELINES, *_MAKES])
            near = suggest(step, [*PIPELINES, *_MAKES])
            message = f"{step!r} is no pipeline and no step; known: {known}.{near}"
            raise ValueError(message)
        if have not in takes:
            message = (
                f"{step!r} takes {' or '.join(takes)}, but before it there are {have}; "
                "put another step before it"
            )
            raise ValueError(message)
        have = takes[have]
    if have != "batches":
        message = f"ends with {have}, training takes batches; add 'map_and_batch'"
        raise ValueError(message)
    if steps.count("shard") != 1:
        message = (
            f"shares the images between the ranks {steps.count('shard')} times, once "
            "is needed; have one 'shard'"
        )
        raise ValueError(message)
    return steps

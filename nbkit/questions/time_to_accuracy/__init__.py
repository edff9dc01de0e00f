"""Time to a target accuracy."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="time, epochs and cost to a target accuracy by training recipe",
    modules={**MODULES, "logs": ".page"},
    reports=("NetApp",),
    parameters={
        "recipes": ["torchvision_sgd", "netapp_lars"],
        "data": "/path/to/imagenet",
        "gpus": 8,
    },
    gpus=8,
    needs="8 A100 GPUs and ImageNet",
    rank=8,
)
__getattr__, __dir__ = QUESTION.face()

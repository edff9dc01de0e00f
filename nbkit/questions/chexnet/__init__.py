"""AUROC of a chest X-ray model beside a shortcut baseline."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="chest X-ray AUROC vs. a shortcut baseline, on 1 and several GPUs",
    modules={**MODULES, "prepare": ".baseline"},
    reports=("CheXNet",),
    parameters={"data": "/path/to/ChestX-ray14", "gpus": 4, "repeats": 5},
    gpus=4,
    needs="the 112,120 images of ChestX-ray14 and 4 nodes with 4 V100 GPUs each",
    rank=9,
)
__getattr__, __dir__ = QUESTION.face()

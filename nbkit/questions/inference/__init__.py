"""Inference latency, throughput and accuracy by number format."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="inference latency, throughput and accuracy by number format",
    modules={**MODULES, "prepare": ".start", "result": ".evidence"},
    reports=("Dell guide",),
    parameters={"precisions": ["fp32", "fp16", "int8"], "repeats": 5},
    gpus=1,
    needs="a V100 or P100 GPU, to compare with the published figures",
    rank=7,
)
__getattr__, __dir__ = QUESTION.face()

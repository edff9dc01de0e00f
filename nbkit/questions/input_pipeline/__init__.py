"""Which input pipeline keeps the devices busy."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="throughput and data wait of input pipelines, and loader tuning",
    modules={**MODULES, "prepare": ".tuner"},
    reports=("CheXNet",),
    parameters={"arms": ["all"], "repeats": 5},
    gpus=4,
    needs="4 V100 GPUs of a C4140, and chest X-rays as TFRecord files",
    rank=4,
)
__getattr__, __dir__ = QUESTION.face()

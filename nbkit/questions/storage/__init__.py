"""Storage throughput and GPU demand, cold and warm cache."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="storage throughput and GPU demand, cold and warm cache",
    modules={**MODULES, "before_start": ".cold_cache", "prepare": ".reads"},
    reports=("NetApp", "Dell guide"),
    parameters={"paths": ["local=/scratch", "nas=/mnt/nas"]},
    gpus=1,
    needs="a file server beside a local disk",
    rank=5,
)
__getattr__, __dir__ = QUESTION.face()

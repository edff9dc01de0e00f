"""Slowdown of concurrent jobs."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="slowdown, fairness and aggregate throughput of concurrent jobs",
    modules={**MODULES, "prepare": ".planning"},
    reports=("NetApp", "vSphere"),
    parameters={"layout": [2, 2]},
    gpus=4,
    needs="several servers on one file server, or GPUs shared by virtual machines",
    rank=6,
)
__getattr__, __dir__ = QUESTION.face()

"""Training throughput by number of devices."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text="training throughput by number of GPUs and nodes, measured and projected",
    modules=MODULES,
    reports=("Dell guide", "Paddle", "vSphere"),
    parameters={"gpus": 8, "precision": ["fp32", "fp16"]},
    gpus=8,
    needs="4 nodes with 8 V100 GPUs each, for the largest published figures",
    rank=1,
)
__getattr__, __dir__ = QUESTION.face()

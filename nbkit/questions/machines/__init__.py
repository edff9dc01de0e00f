"""Training throughput of two machines under equal conditions."""

from nbkit.questions.question import Question

QUESTION = Question(
    __name__,
    text="training throughput of two machines under equal conditions",
    modules={
        "measure": ".planning",
        "plan": ".planning",
        "report": ".page",
        "result": ".page",
        "run": ".page",
    },
    reports=("Dell guide", "Paddle", "vSphere"),
    parameters={"published": ["A100-PCIe", "V100"]},
    gpus=1,
    needs=(
        "bundles of two machines, such as V100 and A100, or bare metal and virtual "
        "machine"
    ),
    rank=3,
)
__getattr__, __dir__ = QUESTION.face()

"""Which of two machines is faster, like for like."""

from nbkit.questions.question import Question

QUESTION = Question(
    __name__,
    label="Machines",
    text=(
        "V100 or A100, PCIe or SXM, virtual or bare metal: which trains "
        "faster, like for like?"
    ),
    modules={
        "MachinesResult": ".page",
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
        "bundles of two machines, such as a V100 and an A100, or one bare and one "
        "virtual"
    ),
    rank=3,
)
__getattr__, __dir__ = QUESTION.face()

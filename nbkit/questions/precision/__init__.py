"""Whether 16 bits are faster than 32 bits, with the same answer."""

from nbkit.questions.question import Question

QUESTION = Question(
    __name__,
    label="Precision",
    text=(
        "what do 16 bits, TF32, the layout and compilation give, and is the "
        "answer right?"
    ),
    modules={
        "PrecisionPlan": ".planning",
        "PrecisionResult": ".page",
        "plan": ".planning",
        "report": ".page",
        "result": ".page",
    },
    reports=("Dell guide", "Paddle"),
    parameters={"repeats": 5},
    gpus=1,
    needs="a V100 or A100 for the figures themselves",
    rank=2,
)
__getattr__, __dir__ = QUESTION.face()

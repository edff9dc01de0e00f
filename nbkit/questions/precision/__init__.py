"""Whether 16 bits are faster than 32 bits, with the same answer."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "PrecisionPlan": "nbkit.questions.precision.planning",
        "PrecisionResult": "nbkit.questions.precision.page",
        "plan": "nbkit.questions.precision.planning",
        "report": "nbkit.questions.precision.page",
        "result": "nbkit.questions.precision.page",
    },
)

"""How fast inference is in each format, and how accurate."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "InferencePlan": "nbkit.questions.inference.planning",
        "InferenceResult": "nbkit.questions.inference.page",
        "Ready": "nbkit.questions.inference.start",
        "plan": "nbkit.questions.inference.planning",
        "prepare": "nbkit.questions.inference.start",
        "report": "nbkit.questions.inference.evidence",
        "result": "nbkit.questions.inference.evidence",
    },
)

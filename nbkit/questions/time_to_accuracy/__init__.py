"""How long training takes to a target accuracy."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "TimeToAccuracyPlan": "nbkit.questions.time_to_accuracy.planning",
        "TimeToAccuracyResult": "nbkit.questions.time_to_accuracy.page",
        "logs": "nbkit.questions.time_to_accuracy.page",
        "plan": "nbkit.questions.time_to_accuracy.planning",
        "report": "nbkit.questions.time_to_accuracy.page",
        "result": "nbkit.questions.time_to_accuracy.page",
    },
)

"""How training scales with the number of devices."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "ScalingResult": "nbkit.questions.scaling.page",
        "bandwidth": "nbkit.reports.bandwidth",
        "plan": "nbkit.questions.scaling.planning",
        "report": "nbkit.questions.scaling.page",
        "result": "nbkit.questions.scaling.page",
    },
)

"""Which of two machines is faster, like for like."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "MachinesResult": "nbkit.questions.machines.page",
        "measure": "nbkit.questions.machines.planning",
        "plan": "nbkit.questions.machines.planning",
        "result": "nbkit.questions.machines.page",
    },
)

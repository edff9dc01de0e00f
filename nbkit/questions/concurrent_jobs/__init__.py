"""How much concurrent jobs slow each other down."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "ConcurrentPlan": "nbkit.questions.concurrent_jobs.planning",
        "ConcurrentResult": "nbkit.questions.concurrent_jobs.page",
        "plan": "nbkit.questions.concurrent_jobs.planning",
        "report": "nbkit.questions.concurrent_jobs.page",
        "result": "nbkit.questions.concurrent_jobs.page",
    },
)

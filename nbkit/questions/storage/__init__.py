"""Whether the storage is fast enough for the GPUs, cold and warm."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "Reads": "nbkit.questions.storage.reads",
        "StoragePlan": "nbkit.questions.storage.planning",
        "StorageResult": "nbkit.questions.storage.page",
        "plan": "nbkit.questions.storage.planning",
        "read": "nbkit.questions.storage.reads",
        "report": "nbkit.questions.storage.page",
        "result": "nbkit.questions.storage.page",
    },
)

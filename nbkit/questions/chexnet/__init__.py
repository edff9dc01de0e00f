"""How well diseases are told on chest X-rays, and how fast."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "ChexnetBaseline": "nbkit.questions.chexnet.baseline",
        "ChexnetPlan": "nbkit.questions.chexnet.planning",
        "ChexnetResult": "nbkit.questions.chexnet.page",
        "baseline": "nbkit.questions.chexnet.baseline",
        "plan": "nbkit.questions.chexnet.planning",
        "report": "nbkit.questions.chexnet.page",
        "result": "nbkit.questions.chexnet.page",
    },
)

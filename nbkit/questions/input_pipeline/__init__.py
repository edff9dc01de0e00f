"""Which input pipeline keeps the devices busy."""

from nbkit.faces import attributes

__getattr__, __dir__ = attributes(
    __name__,
    {
        "PipelinePlan": "nbkit.questions.input_pipeline.planning",
        "PipelineResult": "nbkit.questions.input_pipeline.page",
        "Tuned": "nbkit.questions.input_pipeline.tuner",
        "plan": "nbkit.questions.input_pipeline.planning",
        "report": "nbkit.questions.input_pipeline.evidence",
        "result": "nbkit.questions.input_pipeline.evidence",
        "steps_table": "nbkit.questions.input_pipeline.tables",
        "tune_plan": "nbkit.questions.input_pipeline.tuner",
    },
)

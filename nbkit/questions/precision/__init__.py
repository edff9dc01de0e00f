"""Mixed precision, memory layout and compilation: speedup and loss parity."""

from nbkit.questions.question import MODULES, Question

QUESTION = Question(
    __name__,
    text=(
        "mixed precision, TF32, channels_last, torch.compile: speedup and loss parity"
    ),
    modules=MODULES,
    reports=("Dell guide", "Paddle"),
    parameters={"repeats": 5},
    gpus=1,
    needs="a V100 or A100 GPU, to compare with the published figures",
    rank=2,
)
__getattr__, __dir__ = QUESTION.face()

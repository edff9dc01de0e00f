"""Published reports and the notebooks that cover them.

Printed by ``python -m nbkit.questions.sources``. The reports that nbkit makes
reproducible asked the questions; each has a notebook and one command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nbkit.launch.devices.choice import visible_gpus
from nbkit.plural import plural
from nbkit.questions.question import notebooks_of_questions

REPORTS = {
    "NetApp": "NetApp ONTAP AI with Lenovo ThinkSystem SR670 V2 and AFF A400 (2023)",
    "Dell guide": (
        "Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture "
        "guide (2018)"
    ),
    "CheXNet": "Dell: optimising CheXNet training on C4140 with V100 (2019)",
    "Paddle": "PaddlePaddle: NGC PyTorch ResNet-50 v1.5 reproduced (2023)",
    "vSphere": "Dell: multi-node training with VMware vSphere on R750xa, A100 (2022)",
}
"""Titles of the reports that nbkit makes reproducible, by their short names."""

_MISSING = (
    "Missing: GPUs of the published figures that this machine does not have, and other "
    "requirements, which are not checked. The notebook uses the available GPUs and "
    "data instead."
)


def rows() -> list[dict[str, str]]:
    """Return every question with its command, and what this machine lacks for it."""
    count = len(visible_gpus("auto"))
    return [
        {
            "notebook": question.name,
            "from": ", ".join(question.reports),
            "question": question.text,
            "command": question.command,
            "missing": "; ".join(
                [
                    *[f"{plural(question.gpus, 'GPU')} (here: {count})"]
                    * (count < question.gpus),
                    *filter(None, [question.needs]),
                ]
            ),
        }
        for question in notebooks_of_questions()
    ]


def main(arguments: Sequence[str]) -> int:
    """Print every question, one block each; return the exit status."""
    if arguments:
        sys.stderr.write("usage: python -m nbkit.questions.sources\n")
        return 2
    for row in rows():
        lines = [f"{name:13}  {cell or '–'}" for name, cell in row.items()]
        sys.stdout.write("\n".join(lines) + "\n\n")
    notes = [f"{name}: {title}." for name, title in REPORTS.items()]
    sys.stdout.write("\n".join([*notes, _MISSING]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`nbkit try`: comparison of a script with an earlier commit."""

from __future__ import annotations

import argparse

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import write_json, write_lines

_CODES = {"better": 0, "worse": 2}
"""Exit codes by verdict; 1 for all others."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "try",
        _try,
        summary="compare a script with its version in an earlier commit",
        description="Run a script and its version at a commit alternately, several "
        "times each, and report whether the metric improved. Each version runs in a "
        "copy of the repository, with links to untracked files, such as data. "
        "Arguments after -- are passed to both; {repeat} in them is the number of the "
        "repeat (0, 1, ...), for a seed. The same command continues after an "
        "interruption; if the change was already measured, it prints the stored "
        "result. Exit code: 0 better, 1 no difference shown or no verdict, "
        "2 worse, 3 an error or a wrong command line.",
        example="nbkit try train.py --against HEAD~1 --metric val_loss --better lower "
        "-- --seed {repeat}",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "--against",
        default="HEAD",
        metavar="COMMIT",
        help="commit to compare with (default: HEAD, to test uncommitted changes)",
    )
    parser.add_argument(
        "--metric",
        required=True,
        help="metric that the script passes to nbkit.log, writes to TensorBoard, or "
        "prints as 'step 10: name value' or (in its last 50 lines) 'name: value'. NAME "
        "compares the last value, mean:NAME the mean, best:NAME the best value, "
        "step1000:NAME the value of step 1000; seconds compares the duration",
    )
    parser.add_argument(
        "--better",
        choices=("lower", "higher"),
        required=True,
        help="whether lower or higher values are better",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="smallest relevant difference, relative: 0.01 is 1%% (default: 0)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="runs per version; a verdict needs 5, unless the change is much worse "
        "(default: 5)",
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="also run a second copy of the commit, to measure the noise floor",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="maximum number of concurrent runs (default: one per free GPU; 1 on CPUs "
        "or if the metric is a time, rate or energy)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="time limit in minutes; a run that would exceed it is not started "
        "(default: none)",
    )
    parser.add_argument(
        "--gpus", type=int, default=1, metavar="N", help="GPUs per run (default: 1)"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="device type (default: auto, GPUs if available, else CPUs)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _try(arguments: argparse.Namespace) -> int:
    from nbkit.questions.trial import try_

    trial = try_(
        arguments.script,
        arguments.script_arguments,
        against=arguments.against,
        metric=arguments.metric,
        better=arguments.better,
        margin=arguments.margin,
        repeats=arguments.repeats,
        control=arguments.control,
        parallel=arguments.parallel,
        minutes=arguments.minutes,
        gpus=arguments.gpus,
        device=arguments.device,
        progress=not arguments.json,
    )
    if arguments.json:
        facts = {
            "study": trial.study.study_id,
            "verdict": trial.verdict,
            "is_stored": trial.is_stored,
        }
        write_json({**facts, **trial.report.result})
    else:
        write_lines(str(trial).splitlines())
    return _CODES.get(trial.verdict, 1)

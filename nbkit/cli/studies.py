"""`nbkit compare`, `export`, `import`, `report`, `notebook`: from runs to reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import aligned, say, write_json, write_lines
from nbkit.errors import StoreError


def add_to(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(
        commands,
        "compare",
        _compare,
        summary="compare two finished runs: throughput and recorded differences",
        description="Compare the throughput (images/s) of two finished runs and list "
        "all recorded differences in configuration, code, environment and machine. "
        "Two single runs give no confidence interval; a study with repeats does.",
        example="nbkit compare k3f9 p2wd",
    )
    parser.add_argument("a", metavar="RUN", help="a finished run")
    parser.add_argument("b", metavar="RUN", help="another finished run")
    parser.add_argument("--json", action="store_true", help="print JSON")

    parser = add_command(
        commands,
        "export",
        _export,
        summary="export a run or study to a zip file",
        description="Export a run that has ended, or a study with all its runs, to a "
        "zip file that only you can read.",
        example="nbkit export k3f9 run.zip",
    )
    parser.add_argument("run", metavar="RUN", help="id of a run or study")
    parser.add_argument("file", metavar="FILE", help="zip file, replaced if it exists")
    parser.add_argument(
        "--checkpoints", action="store_true", help="include checkpoints"
    )
    parser.add_argument(
        "--include-arguments",
        action="store_true",
        help="include the arguments and environment of functions and scripts; they may "
        "contain secrets",
    )

    parser = add_command(
        commands,
        "import",
        _import,
        summary="import an exported run or study into the store",
        description="Import a bundle written by nbkit export. No code in it is "
        "executed. A bundle is rejected if it unpacks to more than 1 GiB and to more "
        "than 50 times its size; --large disables this check.",
        example="nbkit import run.zip",
    )
    parser.add_argument("file", metavar="FILE", help="a file written by nbkit export")
    parser.add_argument(
        "--large", action="store_true", help="import a file of any unpacked size"
    )

    parser = add_command(
        commands,
        "report",
        _report,
        summary="generate the report of a study",
        description="Generate the report of a study in the store: report.html, "
        "result.json, charts as PNG, tables as CSV. Without STUDY, list the studies "
        "of the store, newest first.",
        example="nbkit report k3f9 --folder report",
    )
    parser.add_argument(
        "study", metavar="STUDY", nargs="?", help="study id, or its last characters"
    )
    parser.add_argument(
        "--folder", help="the output folder (default: the study's folder)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON; write no files"
    )

    parser = add_command(
        commands,
        "notebook",
        _notebook,
        summary="print the path of an nbkit notebook, for papermill",
        description='Print the path of an nbkit notebook, as in `papermill "$(nbkit '
        'notebook scaling)" out.ipynb -p gpus 8`. Without a name, list the notebooks '
        "and their contents.",
        example="nbkit notebook scaling",
    )
    parser.add_argument(
        "--parameters",
        action="store_true",
        help="list the notebook's parameters: name, type, default, description",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="such as scaling")


def _compare(arguments: argparse.Namespace) -> int:
    from nbkit.reproduction.comparison import compare

    comparison = compare(arguments.a, arguments.b)
    if arguments.json:
        write_json(comparison.to_dict())
    else:
        write_lines([str(comparison)])
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from nbkit.statistics.quantities import size
    from nbkit.store.bundle import export

    say(f"Writing {arguments.file} ...")
    made = export(
        arguments.run,
        arguments.file,
        checkpoints=arguments.checkpoints,
        include_arguments=arguments.include_arguments,
    )
    write_lines([f"{made} ({size(made.stat().st_size)})"])
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from nbkit.store.bundle_import import import_bundle

    say(f"Reading {arguments.file} ...")
    write_lines([str(import_bundle(arguments.file, large=arguments.large))])
    return 0


def _report(arguments: argparse.Namespace) -> int:
    if arguments.study is None:
        from nbkit.store.paths import study_folders

        folders = study_folders()[::-1]
        if arguments.json:
            write_json([folder.name for folder in folders])
        else:
            write_lines([*map(_study_line, folders)] or ["No studies."])
        return 0
    from nbkit.questions.study_report import make, report
    from nbkit.studies.study import Study

    if arguments.json:
        write_json(make(Study.open(arguments.study)).to_dict())
        return 0
    say("Making the report ...")
    write_lines([repr(report(arguments.study, folder=arguments.folder))])
    return 0


def _study_line(folder: Path) -> str:
    from nbkit.studies.stored_study import StoredStudy

    try:
        return repr(StoredStudy(folder))
    except StoreError as error:  # the others are listed all the same
        return f"<Study {folder.name}: {error}>"


def _notebook(arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        from nbkit.studies.notebooks import notebook, parameters_of

        path = notebook(arguments.name)
        write_lines(parameters_of(path) if arguments.parameters else [str(path)])
        return 0
    from nbkit.questions.question import notebooks_of_questions

    rows = [("Notebook", "Contents")]
    rows += [(question.name, question.text) for question in notebooks_of_questions()]
    write_lines(aligned(rows))
    return 0

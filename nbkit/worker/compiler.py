"""Compiler and headers that torch.compile needs beside torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from nbkit.health import CheckResult, check

_PROGRAM = "#include <stdio.h>\n#include <Python.h>\n"
_COMPILERS = {
    "C": ("CC", ("gcc", "clang"), "gcc"),
    "C++": ("CXX", ("g++", "clang++"), "g++"),
}
"""Variable, programs in the order in which they are taken, and Debian's package."""
_LIMIT_SECONDS = 30.0


def judge_compiler(include: Path | None = None) -> CheckResult:
    """Return whether programs can be compiled against this Python."""
    # On GPUs, Triton compiles a launcher in C for each kernel, on the machine that runs
    # it; on CPUs the kernels themselves are C++.
    folder = include or Path(sysconfig.get_path("include"))
    compiler = _compiler("C")
    missing: list[str] = []
    packages: list[str] = []
    for language in _COMPILERS:
        if _compiler(language) is None:
            missing.append(f"no {language} compiler")
            packages.append(_COMPILERS[language][2])
    if not (folder / "Python.h").exists():
        missing.append(f"no Python.h in {folder}")
        packages.append(f"python{sysconfig.get_python_version()}-dev")
    if compiler is not None and not missing:
        problem = _compile(compiler, folder)
        missing = [f"{compiler} fails ({problem})"] if problem else []
        packages = ["gcc", "libc6-dev"]
    detail = f"{compiler} and Python.h found"
    if missing:
        detail = f"{', '.join(missing)}: compile=True fails"
    remedy = f"sudo apt-get install -y {' '.join(packages)} (Debian's names)"
    if os.environ.get("CC"):
        remedy = f"unset CC; {remedy}"
    return check("torch.compile", not missing, detail, remedy)


def _compiler(language: str) -> str | None:
    variable, programs, _ = _COMPILERS[language]
    return os.environ.get(variable) or next(
        filter(None, map(shutil.which, programs)), None
    )


def _compile(compiler: str, folder: Path) -> str | None:
    """Return why a program cannot be compiled; None if it can."""
    try:
        done = subprocess.run(
            [*compiler.split(), "-fsyntax-only", f"-I{folder}", "-xc", "-"],
            input=_PROGRAM,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or ["it printed nothing"]
    errors = [line for line in lines if "error" in line]
    return (errors or lines)[0] if done.returncode else None

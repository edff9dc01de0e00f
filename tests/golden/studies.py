"""Studies that no machine ran, as bundles: ``python -m tests.golden.studies``.

This writes the bundles that are not there, and others only if they are named. The same
case gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nbkit.config import ExperimentConfig
from nbkit.questions.study_plan import Plan
from nbkit.store.bundle import MANIFEST, BundledFile, BundleManifest
from nbkit.studies.order import of_repeat
from nbkit.studies.parameters import Parameters
from nbkit.studies.study import Study
from tests.golden.hosts import Host
from tests.golden.outcome import Outcome, Start
from tests.golden.planted import Planted, planted
from tests.golden.records import write_run

__all__ = ["FOLDER", "STORED", "Case", "build", "main"]

FOLDER = Path(__file__).parent
STORED = "study.zip.xz"
"""A bundle whose files are not compressed by themselves, compressed as a whole: runs
are alike, and so it has a tenth of the bytes."""

_DAY = "20260302"
_BEGIN = 1_772_445_600.0
"""2026-03-02T10:00:00Z."""
_APART_SECONDS = 600.0
"""From one start to the next."""


@dataclass(frozen=True)
class Case:
    """One study of a question."""

    host: Host
    plan: Callable[[Planted, Parameters], Plan]
    outcome: Callable[[str, ExperimentConfig, int], Outcome]
    """By arm, configuration and repeat."""
    question: str | None
    """None is a study of any arms."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that somebody set."""
    unfinished: Sequence[tuple[str, int]] = ()
    """Starts that never came."""
    first_number: int = 1
    """Of its runs. Studies that are compared with each other have no id in common."""


def build(name: str, case: Case, folder: Path, data: Path) -> bytes:
    """Return the bundle of a case."""
    with planted(case.host, data) as here, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(folder))
        chosen = here.parameters(case.question, case.chosen) if case.question else None
        found = case.plan(here, chosen or Parameters({}, {}))
        study = Study.create(
            case.question or "arms",
            found.arms,
            repeats=found.repeats,
            control=found.control,
            unrepeated=found.unrepeated,
            concurrent=found.concurrent,
            parameters=chosen,
            environment=found.environment,
            kind=case.question,
            plan=found.facts,
        )
        content = json.loads(here.back(study.paths.study.read_text()))
        root = study.paths.root.with_name(f"{_DAY}-100000-{_slug(name)}")
        study.paths.root.rename(root)
        content |= {"study_id": root.name, "created": "2026-03-02T09:59:00.000Z"}
        content["runs"] = _write_runs(case, content, folder, here)
        # With one line each the bundle is smaller, and readers do not mind.
        (root / "study.json").write_text(json.dumps(content))
        return _packed(folder, root.name)


def _write_runs(
    case: Case, content: Mapping[str, Any], store: Path, here: Planted
) -> list[dict[str, Any]]:
    """Write every run of the order; return what a study notes of them."""
    entries: list[dict[str, Any]] = []
    begins: dict[tuple[str, int], float] = {}
    number = case.first_number - 1
    for arm, repeat in content["order"]:
        if (arm, repeat) in case.unfinished:
            continue
        fields = of_repeat(content["arms"][arm], repeat, content["plan"])
        name = f"{content['name']} {arm}"
        text = json.dumps({"name": name, **fields})
        config = ExperimentConfig.from_store(text)
        of_here = ExperimentConfig.from_store(here.there(text))
        beside = next((one for one in content["concurrent"] if arm in one), [arm])
        place = begins.setdefault((beside[0], repeat), float(len(begins)))
        begin = _BEGIN + _APART_SECONDS * place
        # Jobs of a round have one start.
        number += 1
        run_id = f"{_DAY}-{100000 + number}000-{_slug(arm)}-{number:04}"
        start = Start(run_id, content["study_id"], arm, repeat, begin)
        write_run(store, config, case.host, start, case.outcome(arm, of_here, repeat))
        entry = {"arm": arm, "repeat": repeat, "run_id": run_id}
        entries.append({**entry, "start": int(place)})
    return entries


def _packed(store: Path, study_id: str) -> bytes:
    """Return a store as a bundle; the same files give the same bytes."""
    paths = sorted(path for path in store.rglob("*") if path.is_file())
    contents = {path.relative_to(store).as_posix(): path.read_bytes() for path in paths}
    manifest = BundleManifest(
        schema="nbkit.bundle/1",
        nbkit="0.1.0",
        created="2026-03-03T09:00:00.000Z",
        host="written-not-measured",
        study=study_id,
        runs=sorted(path.name for path in (store / "runs").iterdir()),
        files={
            name: BundledFile(
                bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                modified_ns=int(_BEGIN) * 10**9,
                private=False,
            )
            for name, data in contents.items()
        },
        left_out=[],
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        listed = manifest.model_dump_json(by_alias=True).encode()
        for name, data in {**contents, MANIFEST: listed}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:32]


def main(names: Sequence[str]) -> int:
    """Write the bundles that are named, else those that are not there."""
    # Imported here: they describe cases in the words of this module.
    from tests.golden.cases import CASES

    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.stderr.write(f"{unknown[0]} is not one of {', '.join(CASES)}\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder).resolve() / "data"
        data.mkdir()
        for name in names or CASES:
            target = FOLDER / name / STORED
            if target.exists() and not names:
                continue
            store = Path(folder) / "stores" / name
            store.mkdir(parents=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            found = build(name, CASES[name], store, data)
            target.write_bytes(found)
            sys.stdout.write(f"{target.relative_to(FOLDER)}: {len(found):,} bytes\n")
    return 0


if __name__ == "__main__":
    os.environ.pop("NBKIT_HOME", None)
    sys.exit(main(sys.argv[1:]))

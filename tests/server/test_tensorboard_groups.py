"""TensorBoards of a study and of the whole store."""

from __future__ import annotations

import json

import pytest

from nbkit.errors import RunNotFoundError
from nbkit.server import tensorboard_groups
from nbkit.server.tensorboard_groups import all_curves, curves_of_study
from tests.server.curves import TAGS, boards, socket_of, store_curves
from tests.server.stored_runs import store_run
from tests.waiting import wait_until

IDS = [f"2020010{number}-000000-run-aaa{number}" for number in range(1, 5)]
STUDY = "20200105-000000-fp16-aaaa"


def _store_study(store, ids):
    folder = store / "studies" / STUDY
    folder.mkdir(parents=True)
    arms = ["fp32", "../fp16"]
    runs = [
        {"arm": arms[number % 2], "repeat": number // 2, "run_id": run_id}
        for number, run_id in enumerate(ids)
    ]
    (folder / "study.json").write_text(json.dumps({"name": "FP16", "runs": runs}))


def test_a_study_and_all_runs_open_by_names_that_a_person_can_read(start):
    server = start()
    for run_id in IDS[:3]:
        store_curves(server, run_id)
    store_run(server.folder / "store", IDS[3])  # it has no curves
    _store_study(server.folder / "store", [IDS[0], IDS[1], "20200101-000000-gone-aaaa"])

    opened = server.request("nbkit/api/tensorboard", {})
    study = server.request(f"nbkit/api/studies/{STUDY}/tensorboard", {})

    def shown(path):
        return set(server.request(f"{path}{TAGS}").body)

    path = "nbkit/tensorboard/all-runs/"
    answer = {"path": path, "idle_seconds": 600, "shown": 3, "total": 4}
    assert opened.body == {**answer, "started": True}
    assert (study.body["shown"], study.body["total"]) == (2, 3)
    # TensorBoard reads the files beside its answers.
    wait_until(lambda: shown(path) == set(IDS[:3]), "all runs")
    names = {"fp32 1 aaa1", "_fp16 1 aaa2"}
    wait_until(lambda: shown(study.body["path"]) == names, "the runs of the study")
    assert [board.net_connections("inet") for board in boards(server)] == [[], []]
    # What is launched later is shown by the same process, as soon as somebody looks;
    # for a page that only keeps it, all runs are not looked for each time.
    store_curves(server, IDS[3])
    kept = {"path": path, "idle_seconds": 600, "started": False}
    assert server.request("nbkit/api/tensorboard", {"keep": True}).body == kept
    assert server.request("nbkit/api/tensorboard", {}).body["started"] is False
    wait_until(lambda: shown(path) == set(IDS), "the new run")
    folder = socket_of(boards(server)[0]).parent
    for board in boards(server):
        board.kill()
    wait_until(lambda: not folder.exists(), "the end of its folder")
    assert (server.folder / "store" / "runs" / IDS[0] / "tensorboard").is_dir()

    listed = server.request("nbkit/api/studies").body
    assert listed == {"studies": [{"study_id": STUDY, "name": "FP16"}]}
    for name in ("nobody", "..", "20200101-000000-none"):
        answer = server.request(f"nbkit/api/studies/{name}/tensorboard", {})
        assert answer.status == 404


def test_only_the_newest_of_many_runs_are_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    monkeypatch.setattr(tensorboard_groups, "MOST_RUNS", 2)
    with pytest.raises(RunNotFoundError, match="no run with TensorBoard files in"):
        all_curves()
    for run_id in IDS:
        folder = store_run(tmp_path, run_id)
        (folder / "tensorboard").mkdir()
    _store_study(tmp_path, IDS)
    outside = tmp_path / "outside"
    (outside / "tensorboard").mkdir(parents=True)
    (tmp_path / "runs" / "20200109-000000-run-link").symlink_to(outside)

    curves = all_curves()

    assert list(curves.folders) == [IDS[3], IDS[2]]
    assert curves.total == 5
    names = list(curves_of_study(STUDY).folders)
    assert names == ["_fp16 2 aaa4", "fp32 2 aaa3"]


@pytest.mark.parametrize(
    "damage", [{"run_id": [IDS[1]]}, {"run_id": 7}, {"arm": None}, {"repeat": "one"}]
)
def test_a_damaged_run_of_a_study_hides_no_other(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    for run_id in IDS[:2]:
        (store_run(tmp_path, run_id) / "tensorboard").mkdir()
    _store_study(tmp_path, IDS[:2])
    file = tmp_path / "studies" / STUDY / "study.json"
    study = json.loads(file.read_text())
    study["runs"][1] |= damage
    file.write_text(json.dumps(study))

    assert list(curves_of_study(STUDY).folders) == ["fp32 1 aaa1"]

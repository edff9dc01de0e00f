"""A run is followed in bounded memory, and what is shown is what was recorded."""

from __future__ import annotations

import json
import random

import pytest

from nbkit.live.log_tail import LINES, LogTail
from nbkit.live.run import LiveRun
from nbkit.live.series import MOST_POINTS, Series, points_of
from nbkit.widgets.picture import picture
from tests.widgets.stored_run import WrittenRun, step


def steps_of(live):
    return [point[0] for point in live.snapshot()["series"]["loss"]]


def test_series_points_are_those_of_a_plain_loop():
    random.seed(1)
    values = [random.randint(0, 10**6) / 8 for _ in range(100_001)]
    series = Series()
    for x, value in enumerate(values):
        series.add(x, value, x / 4)

    *points, last = series.points()

    assert MOST_POINTS / 2 <= len(points) + 1 <= MOST_POINTS
    width = points[1][0]
    for place, (x, low, high, mean, seconds) in enumerate(points):
        bucket = values[place * width : (place + 1) * width]
        assert (x, seconds) == (place * width, x / 4)
        expected = min(bucket), max(bucket), sum(bucket) / len(bucket)
        assert (low, high, mean) == pytest.approx(expected, rel=5e-6)
    assert len(points) == -(-len(values) // width)
    end = float(f"{values[-1]:.6g}")
    assert last == [100_000, end, end, end, 25_000.0]


def test_more_than_twelve_logged_curves_are_sent_on_request(tmp_path):
    written = WrittenRun(tmp_path, task="function")
    live = LiveRun(written.run)
    names = [f"n{n:02}" for n in range(20)]

    def log(number):
        line = {"kind": "log", "attempt": 0, "step": number, "t": 50.0 + number}
        written.append({**line, "values": dict.fromkeys(names, number)})
        live.read()

    log(1)
    assert [*live.take_changes()["series"]] == names[:12]
    log(2)
    live.more_curves = frozenset({"n15", "none such"})

    changes = live.take_changes()["series"]

    assert live.snapshot()["curves"] == names
    assert [*live.snapshot()["series"]] == [*names[:12], "n15"]
    assert changes["n00"] == {"from": 1, "points": [[2, 2, 2, 2, 1.0]]}
    assert changes["n15"]["from"] == 0
    assert [x for x, *_ in changes["n15"]["points"]] == [1, 2]
    live.more_curves = frozenset()
    assert live.take_changes()["series"] == {"n15": None}


def test_direction_characters_in_what_a_run_wrote_are_shown(tmp_path):
    evil, shown = "\u202eevil", r"\u202eevil"
    written = WrittenRun(tmp_path, task="function")
    line = {"kind": "log", "attempt": 0, "step": 1, "t": 50.0}
    written.append({**line, "values": {evil: 7.0}})
    queue = {"position": 1, "length": 2, "reason": evil, "since": "2020"}
    live = LiveRun(written.run)

    written.record("queued", queue=queue)
    live.read()
    waits = live.snapshot()
    trace = f"\t{evil}\n"
    cause = {"message": "it", "traceback": trace, "stacks": {"0": trace}}
    written.record("failed", cause={**cause, "rank": 0, "node": evil})
    live.read()
    ended = live.snapshot()["head"]["cause"]

    assert waits["head"]["queue"] == {**queue, "reason": shown}
    assert waits["curves"] == [*waits["series"]] == [shown]
    assert waits["numbers"]["logged"] == {shown: 7.0}
    assert ended["begin"] == f"failed on rank 0 ({shown}): "
    assert ended["traceback"] == ended["stacks"]["0"] == f"\t{shown}\n"


def test_changes_of_a_line_add_up_to_all_of_it():
    series, copy = Series(most_points=64), []
    for x in range(1000):
        series.add(x, float(x) if x % 7 else None)
        if x % 13 == 0 and (change := series.take_changes()):
            copy[change["from"] :] = change["points"]
    if change := series.take_changes():
        copy[change["from"] :] = change["points"]

    assert copy == series.points()
    assert series.take_changes() is None


def test_points_of_a_whole_line_are_those_of_one_that_grew():
    series, values = Series(most_points=8), []
    for x in range(100):
        value = None if x % 7 == 0 or x > 90 else float(x * x % 31)
        values.append((x, None if x < 5 else x / 4, value))
        series.add(x, value, values[-1][1])

        assert points_of(values, most_points=8) == series.points()
    assert points_of([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_repeated_steps_of_a_new_attempt_count_once_as_in_the_runs_metrics(
    tmp_path, seed
):
    random.seed(seed)
    written = WrittenRun(tmp_path)
    live = LiveRun(written.run)
    position = 0
    for attempt in range(4):
        for _ in range(random.randint(5, 30)):
            position += 1
            written.append(step(position, attempt, loss=random.random()))
            if random.random() < 0.2:
                values = {"attempt": attempt, "step": position}
                kind = random.choice(["checkpoint", "evaluation"])
                written.append({"kind": kind, **values, "top1_accuracy": 0.5})
            if random.random() < 0.3:
                live.read()
        live.read()
        position = random.randint(0, position)
    expected = written.run.metrics()

    assert steps_of(live) == [line["step"] for line in expected]
    losses = [point[3] for point in live.snapshot()["series"]["loss"]]
    assert losses == pytest.approx([line["loss"] for line in expected], rel=1e-5)


def test_numbers_are_those_of_the_summary_once_the_run_has_ended(tmp_path, monkeypatch):
    written = WrittenRun(tmp_path)
    live = LiveRun(written.run)
    for number in range(1, 101):
        seconds = 1 + number % 3
        written.append(step(number, step_time_seconds=seconds, warmup=number < 9))
    assert live.read() is False
    numbers = live.snapshot()["numbers"]
    assert numbers["step"] == 100
    # The last twenty steps took 39 seconds.
    assert numbers["seconds_left"] == pytest.approx(900 * 39 / 20)
    assert numbers["measured"] is None

    written.record("finished")
    assert live.read() is True

    numbers, summary = live.snapshot()["numbers"], written.run.summary
    monkeypatch.setattr("nbkit.live.metrics.median", None)
    assert live.read() is True, "what does not change is not computed again"
    assert numbers["measured"]["images_per_second"] == summary.images_per_second
    assert numbers["measured"]["median"] == summary.images_per_second_median
    assert numbers["measured"]["bursts"] == summary.bursts
    assert numbers["measured"]["q25"] == summary.images_per_second_q25
    assert numbers["measured"]["n"] == summary.n_steps
    assert numbers["data_wait_share"] == summary.data_wait_share
    assert numbers["loss"] == summary.loss


def test_values_that_a_function_logs_are_numbers_and_lines(tmp_path):
    written = WrittenRun(tmp_path, task="function")
    live = LiveRun(written.run)
    for number in range(3):
        values = {"loss": 1.0 - number / 10, "lr": None if number == 1 else 0.1}
        line = {"kind": "log", "attempt": 0, "step": number, "values": values}
        written.append(line)

    live.read()

    shown = live.snapshot()
    assert shown["numbers"]["logged"] == {"loss": 0.8, "lr": 0.1}
    assert shown["numbers"]["total_steps"] is None
    assert shown["series"]["lr"][1] == [1, None, None, None]


def test_device_charts_keep_the_gpu_of_an_earlier_attempt(tmp_path):
    written = WrittenRun(tmp_path)
    written.record("running", attempt=1, launch={"devices": ["GPU-b"]})
    values = ("gpu_utilization_percent", "memory_used_bytes", "power_watts")
    folder = written.run.paths.root / "system"
    folder.mkdir()
    lines = [
        {"kind": "sample", "t": t, "gpus": [gpu]}
        for t, uuid in ((100.0, "GPU-a"), (200.0, "GPU-b"))
        for gpu in [{"index": 0, "uuid": uuid, **dict.fromkeys(values, t)}]
    ]
    (folder / "here.jsonl").write_text("".join(f"{json.dumps(it)}\n" for it in lines))
    live = LiveRun(written.run)

    live.read()

    shown = live.snapshot()
    assert [row["uuid"] for row in shown["devices"]] == ["GPU-b"]
    points = shown["series"]["device:gpu_utilization_percent"]
    assert [point[0] for point in points] == [100.0, 200.0]


def test_only_the_runs_own_gpus_and_instances_are_shown(tmp_path):
    written = WrittenRun(tmp_path)
    written.record("running", launch={"devices": ["GPU-b", "MIG-1"]})
    gpus = [
        {
            "index": index,
            "uuid": uuid,
            "gpu_utilization_percent": 10 * index,
            "memory_used_bytes": index << 30,
            "memory_total_bytes": 80 << 30,
            "memory_unified": True,
            "power_watts": None,
            "mig_instances": [{"uuid": f"MIG-{index}", "memory_used_bytes": 5 << 30}],
        }
        for index, uuid in enumerate(["GPU-a", "GPU-b", "GPU-c"])
    ]
    folder = written.run.paths.root / "system"
    folder.mkdir()
    logged = {"gpu_utilization_percent": 7.0}
    written.append({"kind": "log", "attempt": 0, "step": 1, "values": logged})
    line = {"kind": "sample", "t": 100.0, "gpus": gpus}
    (folder / "here.jsonl").write_text(json.dumps(line) + "\n" + '{"half')
    live = LiveRun(written.run)

    live.read()

    shown = live.snapshot()
    assert [row["uuid"] for row in shown["devices"]] == ["GPU-b", "MIG-1"]
    assert shown["devices"][1]["gpu_utilization_percent"] is None
    assert [row["memory_unified"] for row in shown["devices"]] == [True, False]
    assert shown["series"]["device:gpu_utilization_percent"] == [[100.0, 10, 10, 10]]
    assert shown["series"]["gpu_utilization_percent"] == [[1, 7, 7, 7]]
    assert len(shown["curves"]) == len({*shown["curves"]}) == 3
    assert shown["series"]["device:memory_used_gibibytes"] == [[100.0, 1, 5, 3]]
    assert "device:power_watts" not in shown["series"]


def test_the_end_of_a_huge_log_is_read_and_the_rest_is_not(tmp_path):
    path = tmp_path / "log"
    line = b"all is well and nothing happens in this line of the log\n"
    with path.open("wb") as file:
        file.write(b"needle at the begin\n")
        for _ in range(100):
            file.write(line * (1 << 14))
        file.write(b"\x1b[31mNeedle\x1b[0m near the end\n" + line * 1000)

    tail = LogTail(path).last()
    found = LogTail(path, "needle").last()

    assert len(tail["lines"]) == LINES
    assert tail["searched_bytes"] < 1 << 20 < tail["size_bytes"]
    assert found["lines"] == ["Needle near the end"]
    assert found["searched_bytes"] < found["size_bytes"]


def test_what_is_added_to_a_log_comes_once_and_line_by_line(tmp_path):
    path = tmp_path / "log"
    tail = LogTail(path, "a")
    assert tail.last()["lines"] == []

    said, so_far = [], []
    for text in ("first a\nsec", "ond a\nno\n", "10 %\r20 % a\r", "a" * 9999 + "\n"):
        with path.open("a") as file:
            file.write(text)
        said += tail.new_lines()
        so_far.append(tail.open_line)

    assert said[:2] == ["first a", "second a"]
    assert said[2:] == ["a" * 2000 + "…"]
    assert so_far == ["", "", "20 % a", ""]
    path.write_text("b" * (1 << 20))
    assert tail.new_lines() is None


def test_log_tail_truncated_file(tmp_path):
    path = tmp_path / "log"
    path.write_text("first\n" * 5)
    tail = LogTail(path)
    tail.last()

    path.write_text("again\n")

    assert tail.new_lines() is None


def test_a_line_that_is_half_written_when_the_log_is_opened_comes_once(tmp_path):
    path = tmp_path / "log"
    path.write_text("first\r\nan err")
    tail, filtered = LogTail(path), LogTail(path, "error")
    seen = tail.last()
    assert (seen["lines"], seen["open_line"]) == (["first"], "an err")
    assert filtered.last()["lines"] == []

    with path.open("a") as file:
        file.write("or\r")
    assert tail.new_lines() == []
    assert tail.open_line == "an error"
    with path.open("a") as file:
        file.write("\n")

    assert tail.new_lines() == filtered.new_lines() == ["an error"]
    assert tail.open_line == ""


def test_a_progress_bar_of_hours_is_one_line(tmp_path):
    path = tmp_path / "log"
    path.write_text("begin\n" + "".join(f"{n} %\r" for n in range(200_000)))
    tail = LogTail(path)
    tail.last()
    assert tail.open_line == "199999 %"

    with path.open("a") as file:
        file.write("".join(f"{n} %\r" for n in range(10_000)))
    assert tail.new_lines() == []
    assert tail.open_line == "9999 %"


def test_a_burst_of_more_lines_than_are_told_is_told_as_a_whole(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    tail = LogTail(path)
    tail.last()
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(3000))

    assert tail.new_lines() is None
    assert tail.last()["lines"] == [str(number) for number in range(2500, 3000)]


def test_while_steps_are_read_the_newest_is_shown_and_no_time_is_guessed(tmp_path):
    written = WrittenRun(tmp_path, steps=5000)
    written.append(*map(step, range(1, 4001)))
    live = LiveRun(written.run)
    live.read(0)

    numbers = live.snapshot()["numbers"]
    assert numbers["read_step"] < 4000
    assert numbers["step"] == 4000
    assert numbers["loss"] == 1 / 4000
    assert numbers["seconds_left"] is None
    said = picture(live)["text/plain"]
    assert f"still being read (read up to step {numbers['read_step']:,})" in said
    assert "4,000 of 5,000" in said

    live.read()
    assert live.snapshot()["numbers"]["seconds_left"] == 1000
    assert "still being read" not in picture(live)["text/plain"]


@pytest.mark.parametrize(
    ("skipped", "said"), [([], None), ([True, True, False], "2"), ([False], "0")]
)
def test_updates_that_loss_scaling_left_out_are_counted(tmp_path, skipped, said):
    written = WrittenRun(tmp_path)
    lines = [step(n, update_skipped=was) for n, was in enumerate(skipped, 1)]
    written.append(*(lines or [step(1)]))
    live = LiveRun(written.run)
    live.read()

    shown = [
        line for line in picture(live)["text/plain"].splitlines() if "fp16" in line
    ]

    assert shown == ([] if said is None else [f"  Updates skipped (fp16): {said}"])


def test_a_line_that_lacks_a_value_is_left_out_and_the_others_are_shown(tmp_path):
    written = WrittenRun(tmp_path)
    broken = step(2)
    del broken["images"]
    written.append(step(1), broken, {"kind": "log"}, step(3))
    with written.run.paths.metrics.open("a") as file:
        file.write("17\n")
    written.append(step(4))
    live = LiveRun(written.run)

    live.read()

    assert steps_of(live) == [1, 3, 4]
    numbers = live.snapshot()["numbers"]
    assert numbers["damaged_lines"] == 3
    assert numbers["seconds_left"] == 996


def test_gpus_of_several_hosts_are_one_line_that_never_runs_back(tmp_path):
    written = WrittenRun(tmp_path)
    folder = written.run.paths.root / "system"
    folder.mkdir()

    def sample(host: str, t: float, percent: int) -> None:
        gpu = {
            "index": 0,
            "uuid": f"GPU-{host}",
            "gpu_utilization_percent": percent,
            "memory_used_bytes": 0,
        }
        line = {"kind": "sample", "t": t, "gpus": [gpu]}
        with (folder / f"{host}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    for t in range(100, 103):
        sample("a", t, 10)
        sample("b", t + 0.5, 30)
    live = LiveRun(written.run)
    live.read()
    name = "device:gpu_utilization_percent"
    assert live.snapshot()["series"][name] == [[t, 10, 30, 20] for t in (100, 101)]

    sample("a", 103, 10)
    live.read()
    sample("b", 103.5, 30)
    written.record("finished")
    live.read()

    points = live.snapshot()["series"][name]
    assert points == [[t, 10, 30, 20] for t in range(100, 104)]

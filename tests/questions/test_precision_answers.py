"""An answer is suspect if it is not finite, or elsewhere than the baseline's."""

from __future__ import annotations

import pytest

from nbkit.questions.precision.answers import check_loss_parity
from nbkit.store.summary import summarise_run


def trained(losses, *, scales=None, weights_finite=True):
    """Return the summary of a run that had these losses, None where not finite."""
    lines = [
        {
            "kind": "step",
            "step": number,
            "images": 8,
            "loss": loss,
            "step_time_seconds": 0.5,
            "data_wait_seconds": 0.0,
            "compute_seconds": 0.5,
            "communication_exposed_seconds": 0.0,
            "warmup": False,
        }
        for number, loss in enumerate(losses, start=1)
    ]
    for line, (scale, skipped) in zip(lines, scales or [], strict=False):
        line.update(loss_scale=scale, update_skipped=skipped)
    return summarise_run(lines, {"weights_finite": weights_finite}, {})


def falling(last):
    """Return losses of ten steps that begin at 8 and end at one value."""
    return [*(8.0 - step for step in range(5)), *[3.0] * 4, last]


def judged(*runs, base=(2.0, 2.0), control=None, tolerance=0.05, has_control=True):
    """Return the answer of an arm whose repeats are these runs."""
    arms = {
        "fp32": {repeat: trained(falling(last)) for repeat, last in enumerate(base)},
        "bf16": dict(enumerate(runs)),
    }
    if control is not None:
        arms["fp32 again"] = {
            n: trained(falling(last)) for n, last in enumerate(control)
        }
    again = "fp32 again" if has_control else None
    return check_loss_parity(arms, "fp32", control=again, tolerance=tolerance)["bf16"]


LATE = [8.0] * 9
SCALES = [(65536.0, True), (32768.0, False)] + [(32768.0, False)] * 8
FALLEN = [(2.0**-step, True) for step in range(10)]


@pytest.mark.parametrize(
    ("losses", "base", "difference", "suspicions"),
    [
        ([falling(2.3), falling(1.7)], (2.0, 2.0), 0.0375, []),
        # Repeats are compared one by one.
        ([falling(2.0), falling(6.0)], (2.0, 6.0), 0.0, []),
        (
            [falling(4.4), falling(-0.4)],
            (2.0, 2.0),
            0.3,
            ["30% above the baseline"],
        ),
        (
            [falling(2.0), [*LATE, 6.9], falling(2.0), [*LATE, 6.9], falling(2.0)],
            (2.0,) * 5,
            4.9 / 8,
            ["final loss 61% above the baseline", "mean loss "],
        ),
        ([falling(4.0)] * 2, (2.0, 2.0), 0.25, ["final loss 25% above"]),
        ([falling(0.0)] * 2, (2.0, 2.0), 0.25, ["final loss 25% below"]),
        (
            [[*LATE, 2.0]] * 2,
            (2.0, 2.0),
            0.0,
            ["mean loss "],
        ),
        (
            [[8.0, 7.0, None, *[3.0] * 6, 2.0], falling(2.0)],
            (2.0, 2.0),
            0.0,
            ["loss not finite at step 3"],
        ),
        ([[8.0, None], falling(2.0)], (2.0, 2.0), None, ["loss not finite at step 2"]),
    ],
)
def test_judge_answers_suspicions(losses, base, difference, suspicions):
    answer = judged(*map(trained, losses), base=base)

    assert len(answer.suspicions) == len(suspicions)
    for found, expected in zip(answer.suspicions, suspicions, strict=True):
        assert expected in found
    if difference is None:
        assert (answer.difference, answer.final_loss) == (None, None)
    else:
        assert abs(answer.difference) == pytest.approx(difference)


@pytest.mark.parametrize(
    ("fp32", "control", "suspicions"),
    [
        ([falling(2.0)], [], []),
        ([falling(2.0), [*LATE, 24.0], falling(2.0)], [], ["loss rose by 200%"]),
        ([[*LATE, 24.0]], [], ["loss rose by 200% of the first loss"]),
        ([falling(2.0), [8.0] * 10], [], ["runs differ by 75% of the first"]),
        ([falling(2.0)], [falling(2.1)], []),
        ([falling(2.0)], [falling(5.0)], ["runs differ"]),
    ],
)
def test_judge_answers_baseline(fp32, control, suspicions):
    arms = {"fp32": dict(enumerate(map(trained, fp32)))}
    if control:
        arms["fp32 again"] = dict(enumerate(map(trained, control)))

    found = check_loss_parity(arms, "fp32", control="fp32 again")["fp32"].suspicions

    assert len(found) >= len(suspicions)
    for expected in suspicions:
        assert any(expected in one for one in found)
    assert bool(found) is bool(suspicions)


@pytest.mark.parametrize(
    ("scales", "skipped", "suspicions"),
    [
        (None, None, ()),
        (SCALES, 1, ()),
        (FALLEN, 10, ("loss scale fell to 0.002",)),
    ],
)
def test_judge_answers_loss_scale(scales, skipped, suspicions):
    answer = judged(trained(falling(2.0), scales=scales, weights_finite=None))

    assert (answer.updates_skipped, answer.suspicions) == (skipped, suspicions)
    assert answer.weights_finite is None


def test_a_loss_that_is_compared_with_nothing_is_suspect():
    arms = {"fp32": {0: trained(falling(2.0))}, "bf16": {1: trained(falling(2.0))}}

    answers = check_loss_parity(arms, "fp32")

    assert answers["bf16"].difference is None
    assert answers["bf16"].suspicions == ("loss not comparable with the baseline",)
    assert answers["fp32"].suspicions == ()


@pytest.mark.parametrize(
    ("moved", "limit", "suspect"),
    [(2.1, 0.05, True), (2.4, 0.1, True), (2.8, 0.2, False), (6.0, 0.25, False)],
)
def test_how_far_as_small_a_change_of_weights_takes_a_loss_is_no_fault_of_a_format(
    moved, limit, suspect
):
    arms = {
        "fp32": {1: trained(falling(2.0))},
        "bf16": {1: trained(falling(3.2))},
        "fp32, channels_first": {1: trained(falling(3.2))},
    }

    answers = check_loss_parity(
        arms, "fp32", perturbed={"bf16": trained(falling(moved))}
    )

    assert answers["bf16"].limit == pytest.approx(limit)
    assert bool(answers["bf16"].suspicions) is suspect
    # What was not seen for an arm excuses nothing of it, and does not judge it.
    assert answers["fp32, channels_first"].limit == 0.05
    assert answers["fp32, channels_first"].caveat == "not judged"


def test_without_a_control_what_rounding_could_do_is_not_judged():
    moved = trained(falling(3.2))

    answer = judged(moved, moved, has_control=False)

    assert (answer.suspicions, answer.caveat) == ((), "not judged")
    assert answer.unjudged == ("final loss 15% above the baseline",)
    assert answer.to_dict()["unjudged"] == answer.unjudged
    assert judged(moved, moved).caveat == "loss suspect"
    assert "unjudged" not in judged(moved, moved).to_dict()


@pytest.mark.parametrize(
    "losses",
    [[8.0, 7.0, None, *[3.0] * 6, 2.0], falling(6.0), [8.0] * 9 + [9.0]],
)
def test_what_rounding_cannot_do_is_suspect_without_a_control(losses):
    run = trained(losses)

    assert judged(run, run, has_control=False).caveat == "loss suspect"


@pytest.mark.parametrize("run", [trained([8.0, None], weights_finite=False), None])
def test_a_perturbed_run_that_tells_no_loss_excuses_nothing(run):
    arms = {"fp32": {0: trained(falling(2.0))}, "bf16": {0: trained(falling(3.2))}}

    answers = check_loss_parity(arms, "fp32", perturbed={"bf16": run})

    assert answers["bf16"].limit == 0.05

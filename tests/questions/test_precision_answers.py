"""An answer is suspect if it is not finite, or elsewhere than the baseline's."""

from __future__ import annotations

import pytest

from nbkit.questions.precision.answers import judge_answers
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
    return judge_answers(arms, "fp32", control=again, tolerance=tolerance)["bf16"]


def test_an_answer_near_the_baseline_is_not_suspect():
    answer = judged(trained(falling(2.3)), trained(falling(1.7)))

    assert answer.suspicions == ()
    assert (answer.first_loss, answer.final_loss) == (8.0, 2.0)
    assert abs(answer.difference or 0) == pytest.approx(0.0375)
    assert answer.weights_finite is True


def test_repeats_that_err_in_opposite_directions_do_not_cancel():
    answer = judged(trained(falling(4.4)), trained(falling(-0.4)))

    assert answer.final_loss == 2.0
    [why] = answer.suspicions
    assert why.endswith("the baseline's by 30 % of the first loss")


def test_two_of_five_repeats_that_never_train_are_suspect():
    flat = trained([8.0] * 9 + [6.9])
    good = trained(falling(2.0))

    answer = judged(good, flat, good, flat, good, base=(2.0,) * 5)

    assert answer.final_loss == 2.0
    assert answer.difference == pytest.approx(4.9 / 8)
    assert "final loss is above the baseline's by 61 %" in answer.suspicions[0]
    assert "loss on the way is above" in answer.suspicions[1]


def test_one_run_whose_loss_rises_is_suspect_among_others_that_train():
    rising = trained([8.0] * 9 + [24.0])
    runs = {0: trained(falling(2.0)), 1: rising, 2: trained(falling(2.0))}

    answers = judge_answers({"fp32": runs}, "fp32")

    assert "its loss rose by 200 % of the first loss" in answers["fp32"].suspicions


def test_a_loss_that_is_compared_with_nothing_is_suspect():
    arms = {"fp32": {0: trained(falling(2.0))}, "bf16": {1: trained(falling(2.0))}}

    answers = judge_answers(arms, "fp32")

    assert answers["bf16"].difference is None
    assert answers["bf16"].suspicions == (
        "its loss could not be compared with the baseline's",
    )
    assert answers["fp32"].suspicions == ()


@pytest.mark.parametrize(("last", "where"), [(4.0, "above"), (0.0, "below")])
def test_a_loss_elsewhere_is_suspect_in_both_directions(last, where):
    answer = judged(trained(falling(last)), trained(falling(last)))

    assert abs(answer.difference or 0) == pytest.approx(0.25)
    assert answer.suspicions == (
        f"its final loss is {where} the baseline's by 25 % of the first loss",
    )


def test_an_answer_that_only_arrives_late_is_suspect_although_it_arrives():
    late = trained([8.0] * 9 + [2.0])

    answer = judged(late, late)

    assert answer.difference == 0.0
    [why] = answer.suspicions
    assert why.startswith("its loss on the way is above the baseline's by")


def test_a_baseline_whose_loss_rises_is_suspect_itself():
    rising = {0: trained([8.0] * 9 + [24.0])}

    answers = judge_answers({"fp32": rising, "bf16": rising}, "fp32")

    assert answers["fp32"].suspicions == ("its loss rose by 200 % of the first loss",)


def test_runs_are_compared_repeat_by_repeat():
    apart = judged(trained(falling(2.0)), trained(falling(6.0)), base=(2.0, 6.0))

    assert apart.difference == 0.0


def test_a_baseline_that_learned_once_is_suspect_and_allows_no_arm_more():
    learned, flat = trained(falling(2.0)), trained([8.0] * 10)
    arms = {"fp32": {0: learned, 1: flat}, "bf16": {0: flat, 1: flat}}

    answers = judge_answers(arms, "fp32")

    assert answers["fp32"].suspicions == (
        "its own runs differ by 75 % of the first loss",
    )
    assert "above the baseline's by 75 %" in answers["bf16"].suspicions[0]


@pytest.mark.parametrize(("last", "suspect"), [(2.1, False), (5.0, True)])
def test_a_control_that_trained_elsewhere_makes_the_baseline_suspect(last, suspect):
    arms = {
        "fp32": {0: trained(falling(2.0))},
        "fp32 again": {0: trained(falling(last))},
    }

    answers = judge_answers(arms, "fp32", control="fp32 again")

    assert bool(answers["fp32"].suspicions) is suspect


def test_a_loss_that_is_not_finite_is_suspect_and_its_first_step_is_named():
    losses = [8.0, 7.0, None, 6.0, 5.0, 4.0, 3.0, 3.0, 3.0, 2.0]

    answer = judged(trained(losses), trained(falling(2.0)))

    assert answer.suspicions == ("loss not finite at step 3",)


def test_a_final_loss_that_is_not_finite_is_unknown_and_not_a_number():
    answer = judged(trained([8.0, None], weights_finite=False), trained(falling(2.0)))

    assert answer.final_loss is None
    assert answer.difference is None
    assert answer.weights_finite is False
    assert answer.suspicions == ("loss not finite at step 2",)


def test_skipped_updates_are_told_and_a_few_are_usual():
    scales = [(65536.0, True), (32768.0, False)] + [(32768.0, False)] * 8

    answer = judged(trained(falling(2.0), scales=scales), trained(falling(2.0)))

    assert answer.updates_skipped == 1
    assert answer.suspicions == ()


def test_a_loss_scale_that_fell_away_is_suspect():
    scales = [(2.0**-step, True) for step in range(10)]

    answer = judged(trained(falling(2.0), scales=scales))

    assert answer.updates_skipped == 10
    assert answer.suspicions == ("its loss scale fell to 0.002",)


def test_what_a_run_does_not_say_stays_unknown():
    answer = judged(trained(falling(2.0), weights_finite=None))

    assert answer.weights_finite is None
    assert answer.updates_skipped is None


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

    answers = judge_answers(arms, "fp32", perturbed={"bf16": trained(falling(moved))})

    assert answers["bf16"].limit == pytest.approx(limit)
    assert bool(answers["bf16"].suspicions) is suspect
    # What was not seen for an arm excuses nothing of it, and does not judge it.
    assert answers["fp32, channels_first"].limit == 0.05
    assert answers["fp32, channels_first"].doubt == "not judged"


def test_without_a_control_what_rounding_could_do_is_not_judged():
    moved = trained(falling(3.2))

    answer = judged(moved, moved, has_control=False)

    assert (answer.suspicions, answer.doubt) == ((), "not judged")
    assert answer.unjudged == (
        "its final loss is above the baseline's by 15 % of the first loss",
    )
    assert answer.to_dict()["unjudged"] == answer.unjudged
    assert judged(moved, moved).doubt == "wrong answer?"
    assert "unjudged" not in judged(moved, moved).to_dict()


@pytest.mark.parametrize(
    "losses",
    [[8.0, 7.0, None, *[3.0] * 6, 2.0], falling(6.0), [8.0] * 9 + [9.0]],
)
def test_what_rounding_cannot_do_is_suspect_without_a_control(losses):
    run = trained(losses)

    assert judged(run, run, has_control=False).doubt == "wrong answer?"


def test_a_perturbed_run_that_tells_no_loss_excuses_nothing():
    lost = trained([8.0, None], weights_finite=False)
    arms = {"fp32": {0: trained(falling(2.0))}, "bf16": {0: trained(falling(3.2))}}

    for run in (lost, None):
        assert judge_answers(arms, "fp32", perturbed={"bf16": run})["bf16"].limit < 0.06

"""Report of a chexnet study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from nbkit import statistics
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.questions.chexnet import sentences as words
from nbkit.questions.chexnet.areas import LabelFinding, ScoredImages, judge_labels
from nbkit.questions.chexnet.baseline import aligned
from nbkit.questions.chexnet.chart import areas_chart, epochs_chart
from nbkit.questions.chexnet.literature import PublishedAreas, published_areas
from nbkit.questions.chexnet.planning import SYNTHETIC_MULTILABEL
from nbkit.questions.chexnet.tables import (
    areas_table,
    published_table,
    rates_table,
    same_table,
    trainings_table,
)
from nbkit.questions.chexnet.trainings import (
    Training,
    check_planned_images,
    check_same_images,
    training,
)
from nbkit.reports.conditions import WELCH, conditions
from nbkit.reports.finite_arms import diverged_arms
from nbkit.reports.page import Evidence, next_run, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import Ratio
from nbkit.statistics.auroc import area_under_roc
from nbkit.studies.study import Study

_QUESTION = "Chest X-ray AUROC vs. a shortcut baseline"
_CONDITIONS = ("epochs", "learning_rate", "label_weighting", "weights", "precision")
_OF_NIH = "/path/to/Data_Entry_2017.csv"


@dataclass(frozen=True)
class ChexnetResult:
    """Results of a study for every label."""

    evidence: Evidence
    single: Sequence[Training]
    """Trainings on one device; those with a partner first."""
    parallel: Sequence[Training]
    """Trainings on several devices, in the order of their partners."""
    lost: Sequence[Training] = ()
    """Trainings that diverged (NaN/Inf), which are excluded from all AUROCs."""
    is_judged: bool = True
    """Whether verdicts are possible: every training was finite."""
    is_single_finite: bool = True
    """Whether every training on one device was finite."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """`ChexnetPlan.facts`, the baseline among them."""
        return self.evidence.plan

    @property
    def gpus(self) -> int:
        """Devices of the data-parallel trainings."""
        return self.plan["gpus"]

    @property
    def is_made(self) -> bool:
        """Whether the images were drawn by a program."""
        return self.evidence.conditions.get("data") == SYNTHETIC_MULTILABEL

    @cached_property
    def images(self) -> ScoredImages:
        """The evaluation images with the scores of all models."""
        first = self.single[0].predictions
        patients: Mapping[str, Any] = self.plan.get("patients") or {}
        return ScoredImages(
            first.labels,
            [patients[file] for file in first.files] if patients else None,
            [training.predictions.scores for training in self.single],
            [training.predictions.scores for training in self.parallel],
            aligned(self.plan.get("baseline"), first.files),
        )

    @cached_property
    def findings(self) -> list[LabelFinding]:
        """Of every label, and last of their mean."""
        return judge_labels(self.images)

    @property
    def judged(self) -> list[str]:
        """Labels that the mean includes."""
        return [
            finding.label for finding in self.findings[:-1] if finding.caveat is None
        ]

    @property
    def same(self) -> Table | Note:
        """Comparison of several devices with one device."""
        if not self.parallel:
            return Note([words.nothing_to_pair(self.gpus)])
        if not self.is_judged:
            return Note(["No comparison of devices: a training run diverged."])
        pairs = len(self.parallel)
        return same_table(self.findings, self.gpus, self.plan["margin"], pairs)

    @property
    def _arms(self) -> dict[str, Sequence[Training]]:
        """Trainings by number of devices."""
        arms = {"1 device": self.single, f"{self.gpus} devices": self.parallel}
        return {arm: trainings for arm, trainings in arms.items() if trainings}

    @cached_property
    def speed_up(self) -> Ratio | None:
        """Rate on several devices / rate on one device."""
        several, single = _rates(self.parallel), _rates(self.single)
        has_both = bool(several and single and self.is_judged)
        return statistics.ratio(several, single) if has_both else None

    @cached_property
    def trainings(self) -> Table:
        """Every training by itself."""
        return trainings_table(
            [
                (
                    training.name,
                    self._mean_area(training),
                    training.run.images_per_second,
                )
                for training in (*self.single, *self.parallel)
            ]
            + [
                (f"{training.name} (diverged)", None, training.run.images_per_second)
                for training in self.lost
            ],
            self._baseline_mean,
        )

    @property
    def _baseline_mean(self) -> float | None:
        baseline = self.findings[-1].baseline
        return None if baseline is None else baseline.value

    @cached_property
    def published(self) -> list[PublishedAreas]:
        """Published results of these labels."""
        return published_areas([*self.images.labels])

    @cached_property
    def figure(self) -> Figure:
        """The answer as a picture."""
        counted = f"n={len(self.single)} on 1 device"
        counted += f", n={len(self.parallel)} on {self.gpus}" * (self.gpus > 1)
        whose = "images" if self.images.patients is None else "patients"
        whose += " and training runs" * (len(self.single) > 1)
        chart = areas_chart(
            self.findings,
            self.published,
            gpus=self.gpus,
            subtitle=f"{counted}; error bars: 95% CI over {whose}",
        )
        return Figure("AUROC by label, network and baseline", chart)

    @cached_property
    def curves(self) -> Figure:
        """Mean AUROC of every training over its epochs."""
        rows = [
            {"arm": arm, "training": training.name, "epoch": epoch, "mean_auroc": mean}
            for arm, trainings in self._arms.items()
            for training in trainings
            for epoch, areas in training.epochs
            if (mean := _mean(areas, self.judged)) is not None
        ]
        over = f"mean over {plural(len(self.judged), 'label')}; one line per run"
        chart = epochs_chart(rows, over, self._baseline_mean)
        return Figure("AUROC over the epochs", chart)

    @property
    def answer(self) -> str:
        """The result in words, computed from the data."""
        if not self.is_single_finite:
            return NOTHING_COMPARED
        text = words.answer(self.findings, is_made=self.is_made)
        return f"Generated images: {text}" if self.is_made else text

    @property
    def _device_sentences(self) -> list[str]:
        if not (self.is_judged and self.is_single_finite):
            return []
        return words.device_sentences(self.findings[-1], self.gpus, self.plan["margin"])

    def report(self) -> Report:
        """Return everything in one report."""
        labels = [*self.images.labels]
        margin = self.plan["margin"]
        data = str(self.evidence.conditions.get("data"))
        rates = {arm: _rates(trainings) for arm, trainings in self._arms.items()}
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                Note(self._device_sentences),
                Note([words.no_claim(is_made=self.is_made)]),
                Note(words.unreadable(self.plan)),
                areas_table(self.findings, len(self.single), self.is_single_finite),
                *(self.same, self.trainings),
                rates_table(rates, self.speed_up, self.evidence.is_cpu),
                *(
                    [published_table(self.findings, self.published)]
                    if self.published
                    else []
                ),
                *(self.figure, self.curves),
            ],
            untimed=self.answer,
            on_cpu="",
            trains=False,
            method=[
                *words.method(
                    patients=self.images.patients is not None,
                    trainings=len(self.single),
                ),
                words.data_source(self.plan, data, labels),
            ],
            sources=[
                *words.sources(self.plan, labels),
                WELCH,
                *(Source(row.source, row.url) for row in self.published),
            ],
            quantity="auroc",
            numbers={
                "margin": margin,
                "labels": [asdict(finding) for finding in self.findings],
                "verdict": self.findings[-1].same_within(margin)
                if self.is_judged
                else None,
                "trainings": [
                    {
                        "name": training.name,
                        "seed": training.seed,
                        **asdict(training.run),
                    }
                    for training in (*self.single, *self.parallel)
                ],
                "speed_up": self.speed_up and asdict(self.speed_up),
                "published": [asdict(row) for row in self.published],
            },
            next_step=next_run(self.evidence, data=_OF_NIH) if self.is_made else "",
        )

    def _mean_area(self, training: Training) -> float | None:
        said = training.predictions
        areas = statistics.all_known(
            area_under_roc(said.scores[label], said.labels[label])
            for label in self.judged
        )
        return fmean(area.value for area in areas) if areas else None


def result(study: Study) -> ChexnetResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If no training on one device has finished, one has no predictions, or the
        evaluation images changed.
    """
    facts, finished = study.plan, study.runs_by_arm()
    single_arm, *several = facts["arms"]
    arms = [single_arm, *several[:1]]
    trained = {
        arm: {run.config.seed: training(arm, run) for run in finished.get(arm, [])}
        for arm in arms
    }
    lost = [
        trained[arm].pop(run.config.seed)
        for arm in arms
        for run in finished.get(arm, [])
        if run.nonfinite is not None
    ]
    single, parallel = trained[single_arm], trained[several[0]] if several else {}
    lost_arms = diverged_arms(study)
    if not single:
        message = (
            f"Study {study.study_id} has no finished training run on 1 device. Call "
            "run() first."
        )
        raise NotEnoughDataError(message)
    paired = [seed for seed in single if seed in parallel]
    order = [*paired, *(seed for seed in single if seed not in parallel)]
    evidence = Evidence.of(study)
    shared = _conditions([run for runs in finished.values() for run in runs])
    measured = ChexnetResult(
        replace(evidence, conditions={**shared, "study_id": study.study_id}),
        [single[seed] for seed in order],
        [parallel[seed] for seed in paired],
        lost,
        usable_arms(arms, lost_arms) == arms,
        single_arm not in lost_arms,
    )
    check_same_images([*measured.single, *measured.parallel])
    check_planned_images(facts, measured.single[0])
    return measured


def _conditions(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what all runs have in common: the share of a device is not."""
    shared, config = conditions(runs), runs[0].config
    del shared["batch_size_per_gpu"], shared["seed"]
    return {
        **shared,
        "global_batch_size": config.batch_size_per_gpu * config.world_size,
        **{name: getattr(config, name) for name in _CONDITIONS},
        "seeds": sorted({run.config.seed for run in runs}),
    }


def _rates(trainings: Sequence[Training]) -> list[float]:
    return statistics.all_known(t.run.images_per_second for t in trainings)


def _mean(areas: Mapping[str, float | None], labels: Sequence[str]) -> float | None:
    known = statistics.all_known(map(areas.get, labels))
    return fmean(known) if known else None

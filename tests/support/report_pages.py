"""A strict parser of report pages, and a small finished run to write reports of."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import torch

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.experiment.evaluation_data import TEST_DATA
from fedsynth.report.elements import ReportContext
from fedsynth.report.report_data import MethodInfo, PrivacyRow, ReportData
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory

VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """A page parsed strictly: every element is closed in order, no attribute is repeated."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), tag
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def metrics(private: str = "psg", reference: str = "upper") -> list[Metric]:
    """Three stages of a private method at two budgets and of a reference."""
    rows = []
    for method, epsilon in ((private, 1.0), (private, 10.0), (reference, math.inf)):
        for stage in (1, 2, 3):
            values = {"accuracy": 0.9, "accuracy_std": 0.01, "bytes_up": 2_000_000, "images": 4}
            values |= {f"accuracy_of_stage_{j}": 1 / (stage + j) for j in range(1, stage + 1)}
            values |= {"epsilon_pld": epsilon, "seconds_release": 61.0}
            rows += [Metric(method, epsilon, 0, stage, k, v) for k, v in values.items()]
    return rows


def classifier_metrics(names: tuple[str, ...], protocol: str = "G") -> list[Metric]:
    """Two seeds of two methods evaluated with these classifiers, and a released model."""
    rows = []
    for seed in (0, 1):
        for method, epsilon in (("psg", 10.0), ("upper_bound", math.inf)):
            values = {f"accuracy_{protocol}_{n}": 0.5 + i / 100 for i, n in enumerate(names)}
            values |= {f"real_{protocol}_{n}": 0.9 for n in names}
            values |= {"accuracy": 0.55 + seed / 10, "classifiers": len(names)}
            values |= {"calibrated_accuracy": 0.625}
            rows += [Metric(method, epsilon, seed, 2, k, v) for k, v in values.items()]
            rows += [Metric(method, epsilon, seed, 1, k, 0.0) for k in values]
        rows.append(Metric("dp_sgd", 10.0, seed, 2, "accuracy", 0.2))
        rows.append(Metric("dp_sgd", 10.0, seed, 2, "accuracy_none_convnet", 0.2))
    return rows


def report_data(private: str = "psg", reference: str = "upper") -> ReportData:
    """Report data of those methods."""
    row = PrivacyRow(private, 10.0, 3, 1, 12345, 0.02, 400, 0.97, "server", 9.876, 10.5, 11.25)
    return ReportData(
        title="Split-MNIST",
        scenario="split_mnist",
        preset="laptop",
        dataset="MNIST",
        setting="class-incremental, one head over the classes of MNIST seen",
        methods=(
            MethodInfo(private, "makes a small set", "a paper"),
            MethodInfo(reference, "uses everything", private=False),
        ),
        unit="record",
        relation="add_remove",
        accounting="pld",
        delta=1e-5,
        tested=TEST_DATA,
        privacy=(row, replace(row, view="public", epsilon_pld=None)),
        assumptions=("which classes a party holds",),
        command="python -m fedsynth.run scenario=split_mnist",
        notes=("a note",),
    )


def finished(path: Path) -> RunDirectory:
    """A run with metrics, released images and a released model."""
    run = RunDirectory.create(path)
    run.write_config({})
    run.write_environment(["scenario=split_mnist"])
    run.add_metrics(metrics())
    for epsilon in (1.0, 10.0):
        images = SyntheticSet(torch.rand(4, 1, 28, 28), torch.tensor([5, 5, 6, 6]))
        name = release_name("psg", epsilon, 0)
        run.releases.save(name, 1, images)
        run.releases.save(name, 2, ReleasedModel({"w": torch.ones(2)}, 8))
    return run


def context(run: RunDirectory, data: ReportData | None = None) -> ReportContext:
    """The input of a section for this run."""
    table = frame(run.metrics())
    return ReportContext(run, data or report_data(), table, summarise(table))


COMPARED_CONFIG = {
    "data": "mnist",
    "parties": 1,
    "stages": "together",
    "accounting": "paper",
    "evaluation": {"protocol": "P", "width": 128, "nets": 0, "max_images": 0, "batch": 0},
}


def compared_run(
    path: Path, values: dict[tuple[str, float], dict[str, float]], **config: object
) -> RunDirectory:
    """A finished run of two seeds with these metrics at the last of two stages."""
    run = RunDirectory.create(path)
    run.write_config({**COMPARED_CONFIG, **config})
    run.add_metrics(
        Metric(method, epsilon, seed, stage, name, value + 0.02 * seed - (stage == 1) * 0.3)
        for (method, epsilon), metrics in values.items()
        for name, value in metrics.items()
        for seed in (0, 1)
        for stage in (1, 2)
    )
    return run

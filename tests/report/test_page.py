"""The page is complete in itself, well-formed, escaped, and says what a reader must know."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.report.figures import (
    accuracy_matrices,
    accuracy_matrix_tables,
    accuracy_over_stages,
    images_by_method,
    render,
)
from fedsynth.report.page import MethodInfo, PrivacyRow, ReportData, write_report
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory, release_name

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'$x_{"
VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """Parses strictly: every element is closed in order; collects what a browser would fetch."""

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
        if not {"style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def metrics(private: str = "psg", reference: str = "upper") -> list[Metric]:
    found = []
    for method, epsilon in ((private, 1.0), (private, 10.0), (reference, math.inf)):
        for stage in (1, 2, 3):
            values = {"accuracy": 0.9, "accuracy_std": 0.01, "bytes_up": 2_000_000, "images": 4}
            values |= {f"accuracy_of_stage_{j}": 1 / (stage + j) for j in range(1, stage + 1)}
            values |= {"epsilon_pld": epsilon, "seconds_release": 61.0}
            found += [Metric(method, epsilon, 0, stage, k, v) for k, v in values.items()]
    return found


def info(private: str = "psg", reference: str = "upper") -> ReportData:
    row = PrivacyRow(private, 10.0, 3, 1, 12345, 0.02, 400, 0.97, "curator", 9.876, 10.5, 11.25)
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
        privacy=(row, replace(row, view="public", epsilon_pld=None)),
        assumptions=("which classes a party holds",),
        command="python -m fedsynth.run scenario=split_mnist",
        notes=("a note",),
    )


def finished(path: Path) -> RunDirectory:
    run = RunDirectory.create(path)
    run.write_config({})
    run.write_environment(["scenario=split_mnist"])
    run.add_metrics(metrics())
    for epsilon in (1.0, 10.0):
        images = SyntheticSet(torch.rand(4, 1, 28, 28), torch.tensor([5, 5, 6, 6]))
        run.save_release(release_name("psg", epsilon, 0), 1, images)
        run.save_release(release_name("psg", epsilon, 0), 2, ReleasedModel({"w": torch.ones(2)}, 8))
    return run


def test_the_page_is_complete_in_itself(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    text = write_report(run, info()).read_text()
    page = Page(text)
    assert run.finished
    for tag, attrs in page.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name in ("src", "srcset", "href", "data", "poster", "background"):
            if name in attrs:
                assert re.match(r"data:image/|#", attrs[name] or ""), (tag, attrs[name])
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|//", style[1])
    for target in (a["href"] for a in page.all("a")):
        assert any(attrs.get("id") == (target or "")[1:] for _, attrs in page.tags)
    pictures = [i["src"] or "" for i in page.all("img")]
    pictures += [s["srcset"] or "" for s in page.all("source")]
    for kind, data in (p.removeprefix("data:image/").split(";base64,") for p in pictures):
        raw = base64.b64decode(data, validate=True)
        if kind == "png":
            assert raw.startswith(b"\x89PNG")
            continue
        for node in ElementTree.fromstring(raw).iter():
            for name, value in node.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:"))


def test_the_page_is_accessible(tmp_path: Path) -> None:
    page = Page(write_report(finished(tmp_path / "run"), info()).read_text())
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert all((attrs.get("alt") or "").strip() for attrs in page.all("img"))
    assert all(attrs.get("scope") for attrs in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) >= 4


def test_the_page_says_what_a_reader_must_know(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    words = Page(write_report(run, info()).read_text()).text
    for expected in (
        "class-incremental, one head over the classes of MNIST seen",
        "Class-incremental, one head over the classes of MNIST seen. Accuracy",
        "add or remove one",
        "1e-05",
        "operating system entropy",
        "Not private (ε = ∞): upper is a reference",
        "which classes a party holds",
        "Each row is its own what-if",
        "12,345",
        "9.876",
        "11.25",
        "curator",
        "python -m fedsynth.run scenario=split_mnist",
        "a note",
        "6.0 MB",
        "3 min 03 s",
        torch.__version__,
        "ledger.jsonl",
    ):
        assert expected in words, expected
    assert "an experiment, not a release" not in words
    for name in ("accuracy_over_stages", "accuracy_matrices", "synthetic_images"):
        assert (run.path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_reproducible_noise_stands_in_a_banner(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    words = Page(write_report(run, replace(info(), noise_seed=41)).read_text()).text
    assert "Reproducible noise: an experiment, not a release." in words
    assert "noise_seed=41" in words
    assert "operating system entropy" not in words


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_config({})
    run.write_text("environment.json", '{"python": "<script>", "packages": {"<b>": "<i>"}}')
    run.add_metrics(metrics("_<script>psg$_{", "up<b>per"))
    told = info(HOSTILE, "up<b>per")
    told = replace(
        told,
        title=HOSTILE,
        scenario=HOSTILE,
        preset=HOSTILE,
        dataset=HOSTILE,
        setting=HOSTILE,
        unit=HOSTILE,
        relation=HOSTILE,
        command=HOSTILE,
        assumptions=(HOSTILE,),
        notes=(HOSTILE,),
        methods=(MethodInfo(HOSTILE, HOSTILE, HOSTILE),),
        privacy=tuple(replace(row, view=HOSTILE) for row in told.privacy),
    )
    page = Page(write_report(run, told).read_text())
    assert {"script", "b", "i"} & {tag for tag, _ in page.tags} == {"b"}  # our own chips
    assert len(page.all("b")) == 4
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.text.count("alert(1)") >= 2 * 12


@pytest.mark.parametrize("rows", [[], [Metric("psg", 1.0, 0, 1, "steps", 3)]])
def test_a_run_with_next_to_nothing_still_has_a_report(tmp_path: Path, rows: list[Metric]) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_config({})
    run.add_metrics(rows)
    bare = replace(info(), methods=(), privacy=(), assumptions=(), notes=(), command="")
    page = Page(write_report(run, bare).read_text())
    assert "Split-MNIST" in page.text


def test_equal_runs_draw_equal_figures() -> None:
    def drawn() -> list[bytes]:
        table = frame(metrics())
        figures = (accuracy_over_stages(summarise(table)), accuracy_matrices(table))
        return [render(f, kind) for f in figures if f for kind in ("png", "svg")]

    assert drawn() == drawn()
    assert len(drawn()) == 4


def test_lines_and_bars_are_the_numbers() -> None:
    seeds = [m._replace(seed=s, value=m.value - s / 5) for m in metrics() for s in (0, 1)]
    figure = accuracy_over_stages(summarise(frame(seeds)))
    assert figure is not None
    assert [axis.get_title() for axis in figure.axes] == ["ε = 1", "ε = 10"]
    for axis in figure.axes:
        _, labels = axis.get_legend_handles_labels()
        assert labels == ["psg", "upper (not private)"]
        drawn = [c for c in axis.containers if isinstance(c, ErrorbarContainer)]
        assert len(drawn) == 2
        for container in drawn:
            line, _, (bars,) = container.lines
            assert isinstance(bars, LineCollection)
            assert line.get_xdata() == pytest.approx([1, 2, 3])
            assert line.get_ydata() == pytest.approx([0.8, 0.8, 0.8])
            low, high = bars.get_segments()[0][:, 1]
            assert high - low == pytest.approx(2 * 0.2 / math.sqrt(2))
        dashed = [container.lines[0].get_linestyle() for container in drawn]
        assert dashed == ["-", "--"]


def test_matrices_hold_stage_by_tested_stage() -> None:
    matrix = accuracy_matrix_tables(frame(metrics()))[("psg", 10.0)]
    for stage in (1, 2, 3):
        for tested in (1, 2, 3):
            value = matrix.loc[stage, tested]
            assert math.isnan(value) if tested > stage else value == 1 / (stage + tested)


def test_no_images_and_no_accuracy_mean_no_figure() -> None:
    assert images_by_method({}) is None
    assert accuracy_over_stages([]) is None
    assert accuracy_matrices(frame([])) is None

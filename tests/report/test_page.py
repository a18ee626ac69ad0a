"""The page is self-contained, well-formed, accessible and escaped, and holds what readers need."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from report_pages import Page, finished, metrics, report_data

from fedsynth.report.elements import BUCKETS
from fedsynth.report.page import write_report
from fedsynth.report.report_data import MethodInfo
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'$x_{"


def test_the_page_is_complete_in_itself(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    text = write_report(run, report_data()).read_text()
    page = Page(text)
    assert run.finished
    for tag, attrs in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name in ("src", "srcset", "href", "data", "poster", "background"):
            if name in attrs:
                assert re.match(r"data:image/|#", attrs[name] or ""), (tag, attrs[name])
    assert page.all("script") == [{}]
    script = text.partition("<script>")[2].partition("</script>")[0]
    assert len(script.encode()) <= 1024
    assert not re.search(r"//|fetch|import|eval|innerHTML|XMLHttp", script)
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
    page = Page(write_report(finished(tmp_path / "run"), report_data()).read_text())
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert all((attrs.get("alt") or "").strip() for attrs in page.all("img"))
    assert all(attrs.get("scope") for attrs in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) >= 4


def test_the_page_says_what_a_reader_must_know(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    words = Page(write_report(run, report_data()).read_text()).text
    for expected in (
        "class-incremental, one head over the classes of MNIST seen",
        "Class-incremental, one head over the classes of MNIST seen. Accuracy",
        "add or remove one",
        "1e-05",
        "operating system entropy",
        "Not private (ε = ∞): upper is a reference",
        "which classes a party holds",
        "Each row stands alone",
        "12,345",
        "9.876",
        "11.25",
        "server",
        "python -m fedsynth.run scenario=split_mnist",
        "a note",
        "6 MB",
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
    words = Page(write_report(run, replace(report_data(), noise_seed=41)).read_text()).text
    assert "Reproducible noise: an experiment, not a release." in words
    assert "noise_seed=41" in words
    assert "operating system entropy" not in words


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_config({})
    run.write_text("environment.json", '{"python": "<script>", "packages": {"<b>": "<i>"}}')
    run.add_metrics(metrics("_<script>psg$_{", "up<b>per"))
    data = report_data(HOSTILE, "up<b>per")
    data = replace(
        data,
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
        privacy=tuple(replace(row, view=HOSTILE) for row in data.privacy),
    )
    page = Page(write_report(run, data).read_text())
    assert {"b", "i"} & {tag for tag, _ in page.tags} == {"b"}  # labels in the header
    assert page.all("script") == [{}]  # the one that sorts tables
    assert len(page.all("b")) == 4
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.text.count("alert(1)") >= 2 * 12


@pytest.mark.parametrize("rows", [[], [Metric("psg", 1.0, 0, 1, "steps", 3)]])
def test_a_run_with_next_to_nothing_still_has_a_report(tmp_path: Path, rows: list[Metric]) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.write_config({})
    run.add_metrics(rows)
    bare = replace(report_data(), methods=(), privacy=(), assumptions=(), notes=(), command="")
    page = Page(write_report(run, bare).read_text())
    assert "Split-MNIST" in page.text


def test_tables_are_sorted_by_headings_and_across_units_by_value(tmp_path: Path) -> None:
    text = write_report(finished(tmp_path / "run"), report_data()).read_text()
    costs = text.partition('<section id="costs">')[2].partition("</section>")[0]
    methods = text.partition('<section id="methods">')[2].partition("</section>")[0]
    assert "6 MB" in costs
    assert 'data-order="6000000.0">6 MB' in costs
    assert 'data-order="183.0">3 min 03 s' in costs
    for section, columns in ((costs, 7), (methods, 3)):
        assert '<table class="sortable' in section
        places = re.findall(r'<button type="button" data-column="(\d+)">', section)
        assert places == [str(column) for column in range(columns)]


def test_every_cell_names_its_column_for_narrow_screens(tmp_path: Path) -> None:
    text = write_report(finished(tmp_path / "run"), report_data()).read_text()
    results = text.partition('<section id="results">')[2].partition("</section>")[0]
    headings = [cell["data-heading"] for cell in Page(results).all("td")]
    row = ["Budget ε", "After stage 1", "After stage 2", "After stage 3", "Average", "Forgetting"]
    row += ["ε spent PLD", "ε spent RDP", "ε spent paper", "Release time"]
    assert headings == 3 * row
    assert text.count("@container") == len(BUCKETS)
    for width in BUCKETS:
        assert f".below-{width} {{" in text

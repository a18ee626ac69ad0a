"""The report: one page that opens from disk with no network and says what was found, what it cost
in privacy, and how to do it again.

`write_report` is the last thing a run does; `RunDirectory.finished` asks for its file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedsynth.experiment.progress import duration
from fedsynth.report import classifier_tables as classifiers
from fedsynth.report import html, privacy_section
from fedsynth.report import images_section as gallery
from fedsynth.report import inversion_section as debugging
from fedsynth.report.figures import DARK, LIGHT, accuracy_over_stages, render
from fedsynth.report.paper_comparison import table as compare
from fedsynth.report.report_data import MethodInfo, PrivacyRow, ReportData
from fedsynth.report.style import CSS
from fedsynth.report.summary import (
    MISSING,
    SummaryRow,
    epsilon_words,
    frame,
    html_table,
    stages_of,
    summarise,
)
from fedsynth.storage.run_directory import REPORT, RunDirectory

__all__ = ["MethodInfo", "PrivacyRow", "ReportData", "write_report"]

FILES = (
    ("config.yaml", "every setting of the run, after presets and overrides"),
    ("environment.json", "versions, machine and command"),
    ("metrics.csv", "every number of this page: method, epsilon, seed, stage, metric, value"),
    ("timings.csv", "seconds, in the same form; kept apart because no two runs agree on them"),
    (
        "ledger.jsonl",
        "what every party charged before it released anything: append-only, each line bound to "
        "the one before by its hash",
    ),
    (
        "releases/",
        "one folder a method, epsilon and seed; stage-k.npz holds images (float32, 0 is black and "
        "1 is white) and labels, model-k.npz the arrays of a model; no pickle. "
        "stage-k.png shows ten images a class",
    ),
    ("figures/", "the figures of this page as PNG"),
    ("comparison.md", "our numbers beside the papers', where they print one for data and method"),
    ("log.txt", "what happened when (UTC)"),
    ("report.html", "this page"),
)


def write_report(run: RunDirectory, info: ReportData) -> Path:
    """Settle the metrics, draw the figures and write `report.html`; returns its path.

    The page fetches nothing, holds no script, and escapes every text.
    """
    run.compact_metrics()
    metrics = frame(run.metrics())
    rows = summarise(metrics)
    sections = (
        _results(run, rows, info.setting),
        classifiers.section(metrics),
        compare.section(run),
        debugging.section(run, metrics),
        privacy_section.build(info, metrics),
        gallery.images(run, metrics),
        gallery.matrices(run, metrics),
        _costs(metrics),
        _methods(info),
        _reproduce(run, info),
    )
    return run.write_text(REPORT, _page(info, sections))


def _page(info: ReportData, sections: Sequence[str]) -> str:
    present = [
        f'<a href="#{anchor}">{title}</a>'
        for anchor, title in (
            ("results", "Results"),
            ("classifiers", "Classifiers and images"),
            ("comparison", "Beside the papers"),
            ("debugging", "Inverted images?"),
            ("privacy", "Privacy"),
            ("images", "Released images"),
            ("matrices", "Accuracy by stage"),
            ("costs", "Costs"),
            ("methods", "Methods"),
            ("reproduce", "Reproduce"),
        )
        if any(section.startswith(f'<section id="{anchor}"') for section in sections)
    ]
    chips = (
        ("Scenario", info.scenario),
        ("Data", info.dataset),
        ("Preset", info.preset),
        ("Setting", info.setting),
    )
    chip_list = "".join(f"<li><b>{html.text(k)}</b> {html.text(v)}</li>" for k, v in chips)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.text(info.title)}</title><style>{CSS}</style></head><body>"
        f"<header><h1>{html.text(info.title)}</h1>"
        f'<ul class="chips">{chip_list}</ul>'
        f"{privacy_section.banner(info)}"
        f'<nav aria-label="Sections">{"".join(present)}</nav></header>'
        f"<main>{''.join(sections)}</main>"
        "<footer>Written by fedsynth. This page is complete in itself: it fetches nothing.</footer>"
        "</body></html>\n"
    )


def _results(run: RunDirectory, rows: Sequence[SummaryRow], setting: str) -> str:
    if not rows:
        return html.section("results", "Results", html.paragraph("No metrics were recorded."))
    figure = ""
    if (light := accuracy_over_stages(rows, LIGHT)) and (dark := accuracy_over_stages(rows, DARK)):
        run.write_bytes("figures/accuracy_over_stages.png", render(light, "png"))
        alt = "Test accuracy on all classes seen so far, over the training stages. " + " ".join(
            f"{row.method} at epsilon {epsilon_words(row.epsilon)}: "
            + ", ".join(f"{row.accuracy[stage].mean:.3f}" for stage in sorted(row.accuracy))
            + "."
            for row in rows
            if row.accuracy
        )
        figure = (
            "<figure>"
            + html.scrolling(html.picture(alt, render(light, "svg"), render(dark, "svg")), "wide")
            + "<figcaption>Accuracy over stages, one line a method, one panel an epsilon. "
            "References that are not private are dashed and the same in every panel."
            "</figcaption></figure>"
        )
    return html.section(
        "results",
        "Results",
        _cards(rows),
        html.scrolling(html_table(rows, setting)),
        html.paragraph(
            "Each row is its own what-if: one method at one budget, as if nothing else had been "
            "released. A party that really released several of them would spend their composition, "
            "which is more than any single row. "
            "Forgetting is the accuracy lost, from its best, on the classes of earlier stages.",
            "soft",
        ),
        figure,
    )


def _cards(rows: Sequence[SummaryRow]) -> str:
    """The finding at a glance: the best private method at each epsilon, and the ceiling."""
    stages = stages_of(rows)
    if not stages:
        return ""
    ended = [row for row in rows if stages[-1] in row.accuracy]

    def card(candidates: Sequence[SummaryRow], label: str) -> str:
        if not candidates:
            return ""
        best = max(candidates, key=lambda row: row.accuracy[stages[-1]].mean)
        return (
            f'<div class="card"><div class="label">{html.text(label)}</div>'
            f'<div class="figure">{best.accuracy[stages[-1]].mean:.3f}</div>'
            f'<div class="label">{html.text(best.method)}, after stage {stages[-1]}</div></div>'
        )

    budgets = sorted({row.epsilon for row in ended if row.private})
    cards = [
        card([row for row in ended if row.epsilon == e], f"Best at ε = {epsilon_words(e)}")
        for e in budgets[:4]
    ]
    cards.append(card([row for row in ended if not row.private], "Best without privacy (ε = ∞)"))
    return f'<div class="cards">{"".join(cards)}</div>'


def _costs(metrics: pd.DataFrame) -> str:
    wanted = {
        "images": "Images",
        "bytes_up": "Bytes up",
        "bytes_down": "Bytes down",
        "seconds_release": "Release time",
        "seconds_evaluation": "Evaluation time",
    }
    found = metrics[metrics["metric"].isin(wanted)]
    if found.empty:
        return ""
    sums = found.groupby(["method", "epsilon", "seed", "metric"])["value"].sum()
    means = sums.groupby(["method", "epsilon", "metric"]).mean().unstack("metric")
    rows = []
    for (method, epsilon), values in sorted(
        means.iterrows(), key=lambda item: (item[0][1], item[0][0])
    ):
        cells = [_cost(name, values.get(name, math.nan)) for name in wanted]
        kind = "" if math.isfinite(epsilon) else "reference"
        rows.append((kind, [method, epsilon_words(epsilon), *cells]))
    columns = [
        html.Column("Method", number=False),
        html.Column("Budget ε"),
        *(html.Column(heading) for heading in wanted.values()),
    ]
    caption = "Sums over all stages and parties of one seed; means over seeds"
    return html.section("costs", "Costs", html.table(caption, columns, rows))


def _cost(name: str, value: float) -> str:
    if math.isnan(value):
        return MISSING
    if name.startswith("seconds"):
        return duration(value)
    if not name.startswith("bytes"):
        return f"{value:,.0f}"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _methods(info: ReportData) -> str:
    if not info.methods:
        return ""
    columns = [html.Column(name, number=False) for name in ("Method", "What it does", "Source")]
    rows = [
        ("" if m.private else "reference", (m.name, m.summary, m.source or MISSING))
        for m in info.methods
    ]
    listing = html.table("Methods of this run; references are not private", columns, rows)
    return html.section("methods", "Methods", f'<div class="prose">{listing}</div>')


def _reproduce(run: RunDirectory, info: ReportData) -> str:
    environment = run.read_environment()
    command = info.command or str(environment.get("command", ""))
    machine = [
        ("Python", environment.get("python")),
        ("Platform", environment.get("platform")),
        ("Processor", environment.get("processor")),
        ("CPUs", environment.get("cpus")),
        ("GPUs", ", ".join(map(str, environment.get("gpus") or [])) or "none"),
    ]
    git = environment.get("git")
    if isinstance(git, dict):
        changed = " with local changes" if git.get("changed") else ""
        machine.append(("Commit", f"{git.get('commit')}{changed}"))
    packages = environment.get("packages")
    machine += sorted(packages.items()) if isinstance(packages, dict) else []
    files = html.table(
        "The files of the run directory",
        (html.Column("File", number=False), html.Column("Holds", number=False)),
        [("", pair) for pair in FILES],
    )
    return html.section(
        "reproduce",
        "Reproduce",
        f"<pre><code>{html.text(command)}</code></pre>" if command else "",
        html.bullets(info.notes),
        html.folded("Environment", html.definitions((k, v) for k, v in machine if v is not None))
        if environment
        else "",
        f'<div class="prose">{files}</div>',
    )

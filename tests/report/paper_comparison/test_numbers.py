"""The printed numbers that ship with the package are the papers', and doubts are flagged."""

from __future__ import annotations

import csv
import math
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.evaluation.protocols import PROTOCOLS
from fedsynth.methods.registry import all_methods
from fedsynth.nn.classifiers.registry import CLASSIFIERS
from fedsynth.report.guarantees import Meaning
from fedsynth.report.paper_comparison import numbers
from fedsynth.report.paper_comparison.numbers import Published, paper_numbers

ROOT = Path(__file__).parents[3]
ORIGINAL = ROOT.parent / "shared" / "paper_tables.csv"
METRICS = {
    "accuracy",
    "accuracy_optimistic_max",
    "calibrated_accuracy",
    "inception_score",
    "fid",
    "epsilon",
}


def test_the_neighbours_of_every_private_number_are_known_and_those_of_our_methods() -> None:
    known = numbers.paper_relations()
    for n in paper_numbers():
        if n.epsilon is not None and math.isfinite(n.epsilon):
            assert n.meaning.relation == known[n.method]
            assert n.meaning.delta == n.delta
        else:
            assert n.meaning == Meaning()
    for name, method in all_methods().items():
        if name in known:
            assert method.paper_relation == known[name], name
    assert {known["psg"], known["ldpdc"], known["dp_sgd"]} == {"add_remove"}
    assert {known["dp_merf"], known["gs_wgan"], known["datalens"]} == {"replace_one"}


def of(**wanted: object) -> list[Published]:
    """The numbers with these fields."""
    return [n for n in paper_numbers() if all(getattr(n, k) == v for k, v in wanted.items())]


def test_every_row_makes_sense() -> None:
    assert len(paper_numbers()) > 1000
    for n in paper_numbers():
        assert n.metric in METRICS
        assert n.protocol in (*PROTOCOLS, "none", "original")
        if n.metric in ("accuracy", "accuracy_optimistic_max"):
            assert 0 <= n.value <= 1, n
        elif n.metric == "calibrated_accuracy":
            assert 0 <= n.value < 1.5, n
        elif n.metric == "inception_score":
            assert 1 <= n.value <= 365, n
        assert n.value >= 0
        assert n.epsilon is None or n.epsilon > 0
        assert n.deviation is None or 0 <= n.deviation < 0.2
        assert (n.source, n.table, n.data, n.method, n.printed_method) == tuple(
            text.strip() for text in (n.source, n.table, n.data, n.method, n.printed_method)
        )
        if n.protocol in PROTOCOLS:
            known = (*PROTOCOLS[n.protocol].classifiers, "average", "")
            assert n.classifier in known, n
        assert (n.metric == "accuracy_optimistic_max") == (n.protocol == "L")
        assert (n.protocol == "G") == (
            (n.classifier in SUITE and n.source.startswith("Chen et al. 2020"))
            or n.classifier == "average"
        )


@pytest.mark.skipif(not ORIGINAL.is_file(), reason="the tables are not beside this checkout")
def test_the_rows_are_those_of_the_original_one_by_one() -> None:
    with ORIGINAL.open(newline="") as file:
        originals = list(csv.DictReader(file))
    assert len(originals) == len(paper_numbers())
    for original, ours in zip(originals, paper_numbers(), strict=True):
        percent = original["unit"] == "percent"
        assert ours.value == pytest.approx(float(original["value"]) / (100 if percent else 1))
        if original["std"]:
            assert ours.deviation == pytest.approx(float(original["std"]) / (100 if percent else 1))
        else:
            assert ours.deviation is None
        assert ours.epsilon == (float(original["epsilon"]) if original["epsilon"] else None)
        assert (ours.table, ours.setting) == (original["table"], original["setting"])
        assert ours.printed_method == original["method"]
        assert ours.spc == ({"": None, "full": 6000}.get(original["spc"]) or _int(original["spc"]))


def _int(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def test_cells_that_repeat_another_paper_have_the_protocol_of_that_paper() -> None:
    """003, section 5.1: methods without public code stand with their published numbers."""
    repeated = [n for n in of(table="1a") if n.method in ("g_pate", "datalens", "dp_sinkhorn")]
    assert len(repeated) == 10
    assert {(n.protocol, n.classifier) for n in repeated} == {("original", "")}
    assert {n.protocol for n in of(table="1a") if n not in repeated} == {"P"}


def test_averages_that_do_not_follow_from_their_rows_are_flagged_and_no_others() -> None:
    """Table A1 and A2 of 001: recomputed here from the thirteen rows."""
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for n in of(protocol="G"):
        if n.classifier != "average":
            sums[n.data, n.printed_method, n.metric].append(n.value)
    averages = of(classifier="average")
    assert len(averages) == len(sums)
    for n in averages:
        values = sums[n.data, n.printed_method, n.metric]
        assert len(values) == 13
        mean = sum(values) / 13
        wrong = abs(mean - n.value) > 0.01 + 1e-9  # both the rows and the average are rounded
        assert ("not that of its own rows" in n.flag) == wrong, n
        if wrong:
            assert f"{mean:.3f}".removeprefix("0") in n.flag
            assert n.method == "gan"


def test_cells_that_contradict_each_other_are_flagged() -> None:
    """The same thing printed twice with different values, within one paper."""
    plain = (
        "",
        "full=6000 spc",
        "cross-architecture",
        "full pipeline",
        "spc=20",
        "default settings",
    )
    seen: dict[tuple[object, ...], list[Published]] = defaultdict(list)
    for n in paper_numbers():
        if n.setting in plain:
            spc = 6000 if n.spc is None else n.spc
            who = (n.source, n.data, n.printed_method, n.epsilon, n.classifier, n.metric, spc)
            seen[who].append(n)
    contradictions = [ns for ns in seen.values() if len({n.value for n in ns}) > 1]
    assert len(contradictions) == 3
    for cells in contradictions:
        for n in cells:
            for other in cells:
                if n.value != other.value:
                    assert f"table {other.table[0]}" in n.flag, n


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"method": "dp_cgan", "table": "2"}, "prints the same DP-CGAN row"),
        ({"method": "gs_wgan", "epsilon": 10.0}, "329 to 370"),
        ({"method": "gs_wgan", "epsilon": 1.0}, "count does not hold"),
        ({"method": "datalens", "data": "mnist", "epsilon": 10.0}, "10 into 20.4"),
        ({"method": "g_pate"}, "depends on the data"),
        ({"protocol": "original"}, "repeated from the method's own paper"),
        ({"method": "ndpdc"}, "five-digit seed"),
        ({"method": "dp_merf", "table": "IV"}, "10.00 exactly"),
        ({"method": "dp_merf", "table": "II"}, "spends .79 to .98"),
        ({"method": "dpmix"}, "re-implementation"),
        ({"protocol": "L"}, "best of 600 epochs"),
    ],
)
def test_doubts_of_the_specifications_are_on_their_rows(
    fields: dict[str, object], words: str
) -> None:
    rows = of(**fields)
    assert rows
    assert all(words in n.flag for n in rows)


def test_real_anchors_of_the_nets_are_there() -> None:
    """003 prints what each net reaches on real data; a run must find it under our names."""
    for name in (*CLASSIFIERS[:1], "lenet", "alexnet", "vgg11", "resnet18", "mlp"):
        for data in ("mnist", "fashion_mnist"):
            rows = of(method="upper_bound", data=data, classifier=name, protocol="P")
            assert rows, (name, data)
            assert all(n.epsilon is not None and math.isinf(n.epsilon) for n in rows)


def test_the_file_ships_with_the_package() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["fedsynth"]  # with all files below
    assert "exclude" not in build["targets"]["wheel"]
    assert numbers.FILE.is_file()
    assert numbers.FILE.is_relative_to(ROOT / "fedsynth")

"""Pages on privacy: examples are executed, numbers computed again, sentences have tests by name."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path

import pytest
from countings import DELTA, MNIST, sgd
from document_claims import TESTED
from document_limits import UNTESTED

from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    gaussian,
    gaussian_in_ball,
    poisson,
    repeated,
    without_replacement,
)

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
NIST = DOCS / "nist_sp_800_226.md"
CONCEPT, PUBLISHED = DOCS / "concepts/relation_unit_view.md", DOCS / "published_epsilons.md"
SMALLEST = 50 / 5421  # records of MNIST's smallest class in a group of 50


def pld(event, relation="add_remove"):
    return epsilon(event, DELTA, relation=relation)


def votes(k, sigma, images, teachers=1):
    """Signs of k coordinates of one teacher, or of several that share a record."""
    return repeated(gaussian(sigma / (2 * math.sqrt(k) * teachers)), images)


SETTINGS = {
    "PSG, MNIST, noise 0.96571": (sgd(MNIST, 0.96571, 100_000), "rdp_improved"),
    "PSG, MNIST, noise 2.55296": (sgd(MNIST, 2.55296, 20_000), "rdp_improved"),
    "LDPDC": (sgd(SMALLEST, 1.0, 50), "rdp_improved_2000"),
    "NDPDC": (sgd(SMALLEST, 1.0, 10_000), "rdp_improved_2000"),
    "DP-MERF, noise 5": (gaussian(10.0), None),
    "DP-MERF, noise 0.568": (gaussian(2 * 0.568), None),
    "DP-MERF, noise 0.5 ": (gaussian(1.0), None),
    "DP-CGAN, noise 2.1": (sgd(0.01, 2.1, 30_000), None),
    "DP-CGAN, noise 1.12": (sgd(0.01, 1.12, 30_303), None),
    "DP-Sinkhorn": (
        repeated(poisson(50 / 60_000, gaussian_in_ball(1.1)), 3_446_400),
        "rdp_classic_sparse",
    ),
}
VISITS = repeated(gaussian(1.07), 32 * 20)
ONE_DRAW = repeated(poisson(1e-3, repeated(gaussian(1.07), 32)), 20_000)
ONE_BY_ONE = repeated(without_replacement(1000, 1, gaussian(1.07)), 32 * 20_000)
OTHERS = {
    "GS-WGAN": VISITS,
    "DataLens, MNIST, 200": votes(200, 5000, 1290, teachers=2),
    "DataLens, MNIST, 300": votes(300, 800, 1635, teachers=2),
}
CLASSIC = "rdp_classic"
SENTENCES = {  # of each slip: the words around a number, and the number
    "noise 5 costs {:.3g} for an exchange": lambda: pld(gaussian(10.0), "replace_one"),
    "and {:.3g} for a removal": lambda: pld(gaussian(10.0)),
    "gives {:.3g} where the exact cost": lambda: epsilon(gaussian(0.5), DELTA, CLASSIC),
    "is {:.1f}, and 0.98 where": lambda: pld(gaussian(0.5)),
    "and {:.2g} where that of noise 5": lambda: epsilon(gaussian(5.0), DELTA, CLASSIC),
    "that of noise 5 is {:.3g}.": lambda: pld(gaussian(5.0)),
    "which gives {:.2f}.": lambda: epsilon(ONE_BY_ONE, DELTA, "wor_bound"),
    "the Poisson proxy costs {:.0f}.": lambda: pld(ONE_DRAW),
    "20 visits cost {:.0f} without": lambda: pld(VISITS),
    "1.12 times 1.1 is {:.4g}": lambda: 1.12 * 1.1,
    "reaches {:.2f} after 30,303": lambda: epsilon(sgd(0.01, 1.232, 30_303), DELTA, CLASSIC),
    "costs {:.3g} by the same conversion": lambda: epsilon(sgd(0.01, 1.12, 30_303), DELTA, CLASSIC),
    "of 2.1 costs {:.3g}.": lambda: epsilon(sgd(0.01, 2.1, 30_000), DELTA, CLASSIC),
    "1 becomes {:.3g}": lambda: pld(votes(200, 5000, 1290, teachers=2)),
    "10 becomes {:.3g}.": lambda: pld(votes(300, 800, 1635, teachers=2)),
}


def table_rows(text):
    """The cells of all table rows that are no heading."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] != "setting"]


def test_examples_print_what_the_page_says():
    text = CONCEPT.read_text(encoding="utf-8")
    printed, scope = io.StringIO(), {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
    assert printed.getvalue() == "".join(re.findall(r"```text\n(.*?)```", text, flags=re.S))
    assert printed.getvalue()


@pytest.mark.parametrize("name", SETTINGS)
def test_defensible_epsilons_of_published_settings(name):
    (row,) = [row for row in table_rows(PUBLISHED.read_text()) if row[0].startswith(name)]
    event, convention = SETTINGS[name]
    assert float(row[2]) == float(f"{pld(event):.3g}")
    assert float(row[3]) == float(f"{pld(event, 'replace_one'):.3g}")
    if convention:
        assert float(row[1]) == pytest.approx(epsilon(event, DELTA, convention), rel=2e-3)


def test_every_row_is_checked():
    rows = table_rows(PUBLISHED.read_text())
    names = (*SETTINGS, *OTHERS, "G-PATE, PATE-GAN")
    assert all(any(row[0].startswith(name) for name in names) for row in rows)
    assert len(rows) == len(names)
    for name, event in OTHERS.items():
        (row,) = [row for row in rows if row[0].startswith(name)]
        assert row[2] == f"{pld(event):.3g}", name


def test_every_sentence_with_a_result_is_checked():
    text = " ".join(PUBLISHED.read_text().partition("## Slips")[2].split())
    for words, value in SENTENCES.items():
        before, field, after = re.fullmatch(r"(.*?)\{:(.*?)\}(.*)", words).groups()
        shown = re.search(rf"{re.escape(before)}(\d+\.?\d*){re.escape(after)}", text)
        assert shown, words
        assert shown[1] == format(value(), field), words
    sentences = re.split(r"(?<=[a-z\d])[.:]\s", text)
    checked = [part.rstrip(".") for words in SENTENCES for part in re.split(r"\{.*\}", words)]
    for sentence in sentences:
        if re.search(r"(costs?|gives|becomes|reaches) [\d.]+", sentence):
            assert any(part and part in sentence for part in checked), sentence


def sentences(document):
    """The sentences and table rows of a document, without headings, rules and examples."""
    text = (ROOT / document).read_text(encoding="utf-8")
    if document == "README.md":
        parts = ("## The meaning of epsilon", "## Architecture")
        text = "\n".join(text.partition(part)[2].partition("\n## ")[0] for part in parts)
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for block in re.split(r"\n\s*\n|\n(?=\* |\| |#)", text):
        words = " ".join(block.split()).removeprefix("* ")
        if words and not words.startswith("#") and set(words) - set("|- "):
            yield from re.split(r"(?<=[a-z\d)*`\"\]][.:])\s+(?=[A-Z`*\"])", words)


def named_tests(text):
    return re.findall(r"`([\w/]+\.py::\w+)`", text)


def exists(test):
    file, _, function = test.partition("::")
    path = TESTS / file
    return path.is_file() and re.search(rf"^def {function}\(", path.read_text(), re.M) is not None


@pytest.mark.parametrize("document", TESTED)
def test_every_sentence_on_privacy_has_a_test_or_states_a_limit(document):
    found = list(sentences(document))
    assert found
    tested, untested = TESTED[document], UNTESTED[document]
    for sentence in found:
        assert any(words in sentence for words in (*tested, *untested)), sentence
    for words in (*tested, *untested):
        assert any(words in sentence for sentence in found), f"{document} lacks: {words}"


def test_every_named_test_exists():
    """Those of the table for NIST SP 800-226, and those behind the sentences of the documents."""
    names = named_tests(NIST.read_text(encoding="utf-8"))
    assert len(names) > 50
    names += [name for claims in TESTED.values() for name in claims.values()]
    assert [name for name in names if not exists(name)] == []
    assert not exists("test_docs_privacy.py::test_that_is_not_there")


def test_every_area_of_an_evaluation_has_an_answer_and_a_test():
    """An answer `no` needs no test; another one does, except where it says what is not checked."""
    rows = [row for row in table_rows(NIST.read_text(encoding="utf-8")) if row[0] != "area"]
    rows = [row for row in rows if set(row[0]) - set("- |")]
    assert len(rows) >= 45
    for area, answer, text, *tests in rows:
        assert answer in ("yes", "part", "no"), area
        assert len(text) > 20, area
        without = answer == "no" or "no proof is checked by a machine" in text
        assert without != bool(named_tests(" ".join(tests))), area

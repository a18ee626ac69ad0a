"""The numbers of a spending: published ones, Gaussian ones, and both relations."""

from __future__ import annotations

import math

import pytest
from countings import MNIST, printed, sgd

from fedsynth.privacy.accounting.events import (
    composed,
    disclosed,
    gaussian,
    nothing,
    poisson,
    repeated,
)
from fedsynth.privacy.accounting.gdp import gdp_delta, gdp_epsilon
from fedsynth.privacy.certificate.spending import mechanism_events, spending


def epsilon_at(event, delta, relation="add_remove", accountant="pld"):
    (row,) = (
        row
        for row in spending(event, delta)["epsilon"]
        if (row["delta"], row["relation"]) == (delta, relation)
    )
    return row[accountant]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (gaussian(5.0), ".7255"),  # the self-checks of dp_merf.md
        (gaussian(25.0), ".1254"),
        (gaussian(0.568), "8.553"),
        (gaussian(0.5), "9.997"),
        (gaussian(3.7306), "1.0000"),
    ],
)
def test_published_self_checks_are_reproduced(event, text: str) -> None:
    assert epsilon_at(event, 1e-5) == printed(text)


def test_the_second_accountant_is_looser_and_close() -> None:
    event = sgd(MNIST, 2.55296, 20_000)
    for relation in ("add_remove", "replace_one"):
        pld, rdp = (epsilon_at(event, 1e-5, relation, name) for name in ("pld", "rdp"))
        assert pld < rdp < 1.3 * pld


def test_a_gaussian_has_a_mu_from_which_all_numbers_follow() -> None:
    event = composed([repeated(gaussian(3.0), 9), gaussian(1.0)])
    found = spending(event, 1e-6)
    assert found["mu"]["add_remove"] == pytest.approx(math.sqrt(2))
    assert found["mu"]["replace_one"] == pytest.approx(2 * math.sqrt(2))
    assert epsilon_at(event, 1e-6) == pytest.approx(gdp_epsilon(math.sqrt(2), 1e-6))
    replaced = epsilon_at(event, 1e-6, "replace_one")
    assert replaced == pytest.approx(gdp_epsilon(2 * math.sqrt(2), 1e-6))
    for relation, factor in (("add_remove", 1), ("replace_one", 2)):
        for point in found["profile"][relation]:
            expected = gdp_delta(factor * math.sqrt(2), point["epsilon"])
            assert point["delta"] == pytest.approx(expected)


@pytest.mark.parametrize("event", [disclosed(), gaussian(0.0), poisson(0.1, gaussian(1.0))])
def test_nothing_else_has_one(event) -> None:
    assert spending(event, 1e-5)["mu"] == {"add_remove": None, "replace_one": None}


def test_a_disclosure_is_infinite_and_nothing_is_zero() -> None:
    assert (
        epsilon_at(disclosed(), 1e-5) == epsilon_at(disclosed(), 1e-5, "replace_one") == "infinity"
    )
    assert epsilon_at(nothing(), 1e-5) == 0.0
    assert spending(disclosed(), 1e-5)["profile"]["replace_one"][0]["delta"] == 1.0


def test_mechanisms_are_listed_with_their_uses() -> None:
    step = poisson(0.1, gaussian(1.0))
    rows = mechanism_events(composed([repeated(step, 3), gaussian(2.0), step]))
    assert {row["words"]: row["uses"] for row in rows} == {
        "Poisson(q=0.1) of Gaussian(sigma=1)": 4,
        "Gaussian(sigma=2)": 1,
    }

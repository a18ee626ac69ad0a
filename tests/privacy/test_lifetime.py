"""The lifetime filter against direct computations with dp-accounting, and its book."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy.integrate import quad
from scipy.stats import norm

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.privacy.accounting.accountant import renyi_divergence
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import (
    composed,
    disclosed,
    gaussian,
    one_part,
    parallel,
    poisson,
    repeated,
    to_json,
    without_replacement,
)
from fedsynth.privacy.ledger_entry import CHARGE
from fedsynth.privacy.lifetime import (
    BOOK,
    ORDERS,
    AdmittedJob,
    LifetimeBook,
    LifetimeBudget,
    WithinPlan,
    best_order,
    divergence_limit,
    epsilon_of,
    together,
)

BUDGET = LifetimeBudget(3.0, 1e-5)


def job(key: str, sigma: float) -> AdmittedJob:
    return AdmittedJob(key, f"job {key}", gaussian(sigma))


def whole_budget(epsilon: float, delta: float) -> float:
    """The noise multiplier of one unsampled Gaussian that costs just this."""
    return poisson_gaussian_multiplier(1.0, 1, epsilon, delta, "pld")


# Divergences and conversions


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_limit_converts_to_the_epsilon_by_dp_accounting(epsilon: float, delta: float) -> None:
    order = best_order(epsilon, delta)
    limit = divergence_limit(epsilon, delta, order)
    assert compute_epsilon([order], [limit], delta)[0] == pytest.approx(epsilon, rel=1e-9)
    assert epsilon_of(limit, delta, order) == pytest.approx(epsilon, rel=1e-9)


def test_the_best_order_fits_the_most_gaussians() -> None:
    best = best_order(2.0, 1e-5)
    room = {order: divergence_limit(2.0, 1e-5, order) / order for order in ORDERS}
    assert room[best] == max(room.values())
    fits = [order for order, value in room.items() if value > 0.9 * room[best]]
    assert 1.1 < min(fits) < best < max(fits) < 1024


@pytest.mark.parametrize("order", [2.0, 3.4, 8.0, 18.0])
def test_divergences_are_those_of_dp_accounting(order: float) -> None:
    event = composed([repeated(poisson(0.02, gaussian(1.3)), 100), gaussian(4.0)])
    theirs = RdpAccountant([order])
    theirs.compose(
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.02, dp.GaussianDpEvent(1.3)), 100)
    )
    theirs.compose(dp.GaussianDpEvent(4.0))
    limit = float(theirs._rdp[0])
    assert renyi_divergence(event, order) == pytest.approx(
        limit, rel=1e-6 if order % 1 == 0 else 0.5
    )
    assert renyi_divergence(event, order) <= limit * (1 + 1e-6)


def replacement(q: float, sigma: float, order: float) -> float:
    """The Renyi divergence between sampled Gaussians with a record at +1 and at -1."""

    def density(z: float, mean: float) -> float:
        return float((1 - q) * norm.pdf(z, scale=sigma) + q * norm.pdf(z, mean, sigma))

    def integrand(z: float) -> float:
        return density(z, 1) * (density(z, 1) / density(z, -1)) ** (order - 1)

    return math.log(quad(integrand, -12 * sigma, 12 * sigma, limit=400)[0]) / (order - 1)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.2, 2.0), (0.9, 3.0)])
@pytest.mark.parametrize("order", [2.0, 4.5])
def test_the_divergence_of_a_replacement_is_the_integral(
    q: float, sigma: float, order: float
) -> None:
    event = poisson(q, gaussian(sigma))
    bound = renyi_divergence(event, order, "replace_one")
    assert bound == pytest.approx(replacement(q, sigma, order), rel=1e-9)
    assert bound <= 4 * order / (2 * sigma**2)
    assert renyi_divergence(gaussian(sigma), order, "replace_one") == pytest.approx(
        4 * order / (2 * sigma**2)
    )


def test_disclosures_and_parts() -> None:
    assert renyi_divergence(disclosed(), 2.0) == math.inf
    worst = renyi_divergence(parallel([gaussian(1.0), gaussian(2.0)]), 3.0)
    assert worst == renyi_divergence(gaussian(1.0), 3.0)
    for relation in ("add_remove", "replace_one"):
        with pytest.raises(UserError, match="without replacement"):
            renyi_divergence(without_replacement(9, 3, gaussian(1.0)), 2.0, relation)


# The filter


def test_a_first_job_may_cost_the_whole_budget_by_pld_and_excludes_a_second(tmp_path: Path) -> None:
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    sigma = whole_budget(3.0, 1e-5)
    assert renyi_divergence(gaussian(sigma), BUDGET.renyi_order) > BUDGET.limit
    book.admit(job("a", sigma))
    book.admit(job("a", sigma))
    assert book.spent().epsilon == pytest.approx(3.0, rel=1e-4)
    assert not book.spent().further_jobs
    with pytest.raises(Refused, match="1 jobs have been admitted") as caught:
        book.admit(job("b", 1e6))
    assert caught.value.code is Refusal.BUDGET


def test_a_first_job_above_the_budget_is_refused_and_not_written(tmp_path: Path) -> None:
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    with pytest.raises(Refused, match="this job would cost epsilon=3"):
        book.admit(job("a", 0.99 * whole_budget(3.0, 1e-5)))
    with pytest.raises(Refused, match="epsilon=inf"):
        book.admit(AdmittedJob("b", "b", disclosed()))
    assert not (tmp_path / BOOK).exists()


def test_jobs_are_admitted_until_their_divergences_reach_the_limit(tmp_path: Path) -> None:
    """Counted by dp-accounting at the same order; no further one fits, and all cost the budget."""
    order, sigma = BUDGET.renyi_order, 6.0
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    accountant, admitted = RdpAccountant([order]), 0
    for number in itertools.count():
        try:
            book.admit(job(str(number), sigma))
        except Refused:
            break
        admitted += 1
        accountant.compose(dp.GaussianDpEvent(sigma))
        assert accountant.get_epsilon(1e-5) <= 3.0 * (1 + 1e-9)
        assert book.spent().epsilon <= accountant.get_epsilon(1e-5) * (1 + 1e-9)
    accountant.compose(dp.GaussianDpEvent(sigma))
    assert accountant.get_epsilon(1e-5) > 3.0
    assert admitted > 3
    assert not LifetimeBook(tmp_path / BOOK, BUDGET).spent().left < 0


def test_a_server_that_adapts_gains_nothing(tmp_path: Path) -> None:
    """Whatever order it asks in: large, small, what was refused again, with the book read anew."""
    asked = [2.0, 30.0, 1.5, 9.0, 4.0, 100.0, 3.0] * 20
    for number, sigma in enumerate(asked):
        book = LifetimeBook(tmp_path / BOOK, BUDGET)
        try:
            book.admit(job(str(number), sigma))
        except Refused:
            continue
    jobs = LifetimeBook(tmp_path / BOOK, BUDGET).jobs()
    direct = PLDAccountant()
    for known in jobs:
        direct.compose(known.event)
    assert 1 < len(jobs) < len(asked)
    assert direct.get_epsilon(1e-5) <= 3.0
    total = math.fsum(renyi_divergence(known.event, BUDGET.renyi_order) for known in jobs)
    assert total <= BUDGET.limit * (1 + 1e-9)


def test_parts_of_two_jobs_are_added_and_not_compared(tmp_path: Path) -> None:
    """Two jobs may cut the records otherwise under the same name: their worst parts add up."""
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    event = one_part("subsets", 0, 2, gaussian(2.0))
    other = one_part("subsets", 1, 2, gaussian(2.0))
    assert renyi_divergence(composed([event, other]), 3.0) == renyi_divergence(event, 3.0)
    book.admit(AdmittedJob("a", "a", event))
    before = book.spent().divergence
    for number in range(99):
        with contextlib.suppress(Refused):
            book.admit(AdmittedJob(f"b{number}", "b", other))
    assert before * len(book.jobs()) == pytest.approx(book.spent().divergence)
    assert len(book.jobs()) == int(BUDGET.limit / before)


def test_an_infinite_budget_admits_disclosures(tmp_path: Path) -> None:
    book = LifetimeBook(tmp_path / BOOK, LifetimeBudget(math.inf, 1e-5))
    for key in "ab":
        book.admit(AdmittedJob(key, key, disclosed()))
    assert len(book.jobs()) == 2


@dataclass
class Charge:
    """The part of a ledger's entry that the rule reads."""

    job: str
    event: dict[str, Any]
    kind: str = CHARGE


def test_a_job_charges_what_it_was_admitted_with(tmp_path: Path) -> None:
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    planned = AdmittedJob("a", "first", repeated(gaussian(6.0), 3))
    book.admit(planned)
    rule = WithinPlan(book, planned)
    done: list[Any] = []
    for _ in range(3):
        rule.check(done, gaussian(6.0))
        done.append(Charge("first", to_json(gaussian(6.0))))
    for more in (gaussian(6.0), gaussian(600.0)):
        with pytest.raises(Refused, match="more than the plan"):
            rule.check(done, more)
    with pytest.raises(Refused, match="more than the plan"):
        WithinPlan(book, planned).check([], gaussian(5.9))


def test_a_ledger_with_jobs_that_the_book_lacks_is_refused(tmp_path: Path) -> None:
    """As after the removal of a line of the book, which would make room for a job."""
    book = LifetimeBook(tmp_path / BOOK, BUDGET)
    planned = AdmittedJob("a", "first", repeated(gaussian(6.0), 3))
    book.admit(planned)
    other: Any = Charge("second", to_json(gaussian(6.0)))
    with pytest.raises(Refused, match="lacks jobs") as caught:
        WithinPlan(book, planned).check([other], gaussian(6.0))
    assert caught.value.code is Refusal.LEDGER
    book.admit(AdmittedJob("b", "second", gaussian(6.0)))
    WithinPlan(book, planned).check([other], gaussian(6.0))


def test_a_book_with_a_lower_cost_than_the_ledger_is_refused(tmp_path: Path) -> None:
    """One altered digit of the book would make room for jobs; the ledger, which is signed, has what
    was charged."""
    path, first = tmp_path / BOOK, AdmittedJob("a", "first", gaussian(6.0))
    LifetimeBook(path, BUDGET).admit(first)
    path.write_text(path.read_text().replace("6.0", "9.0"))
    book, second = LifetimeBook(path, BUDGET), AdmittedJob("b", "second", gaussian(60.0))
    book.admit(second)
    charge: Any = Charge("first", to_json(gaussian(6.0)))
    for _ in range(2):
        with pytest.raises(Refused, match="or their cost") as caught:
            WithinPlan(book, second).check([charge], gaussian(60.0))
        assert caught.value.code is Refusal.LEDGER
    with pytest.raises(Refused, match="at another cost"):
        book.admit(first)


# The book


def test_the_filter_of_a_lifetime_does_not_change(tmp_path: Path) -> None:
    """An order chosen after the releases would be one of many bounds, at the data's choice."""
    LifetimeBook(tmp_path / BOOK, BUDGET).admit(job("a", 9.0))
    for other in (
        LifetimeBudget(3.0, 1e-5, order=4.0),
        LifetimeBudget(3.0, 1e-6),
        LifetimeBudget(3.0, 1e-5, relation="replace_one"),
        LifetimeBudget(3.0, 1e-5, unit="user"),
        LifetimeBudget(30.0, 1e-5),
    ):
        with pytest.raises(UserError, match="fixed for a lifetime"):
            LifetimeBook(tmp_path / BOOK, other).admit(job("b", 9.0))
    more = LifetimeBudget(4.0, 1e-5, order=BUDGET.renyi_order)
    LifetimeBook(tmp_path / BOOK, more).admit(job("b", 9.0))


@pytest.mark.parametrize("line", ["{}", "[]", "x", '{"key": 1}', "[" * 100_000])
def test_a_damaged_book_admits_nothing(tmp_path: Path, line: str) -> None:
    LifetimeBook(tmp_path / BOOK, BUDGET).admit(job("a", 9.0))
    path = tmp_path / BOOK
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(UserError, match="line 1: not a job"):
        LifetimeBook(path, BUDGET).admit(job("b", 9.0))


def test_a_line_cut_off_by_a_crash_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / BOOK
    LifetimeBook(path, BUDGET).admit(job("a", 9.0))
    path.write_text(path.read_text() + '{"key": "cut')
    LifetimeBook(path, BUDGET).admit(job("b", 9.0))
    assert [known.key for known in LifetimeBook(path, BUDGET).jobs()] == ["a", "b"]


def test_worlds_together_are_composed() -> None:
    events = [gaussian(2.0), gaussian(2.0)]
    direct = PLDAccountant()
    for event in events:
        direct.compose(event)
    assert together(events, BUDGET) == pytest.approx(direct.get_epsilon(1e-5), rel=1e-3)

"""Noise multipliers: the published tables, and that the answer is the smallest safe one."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting import accountant, calibration, pld
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import (
    PRECISION,
    gaussian_mu,
    noise_multiplier,
    poisson_gaussian_multiplier,
    poisson_gaussian_steps,
)
from fedsynth.privacy.accounting.events import (
    composed,
    disclosed,
    gaussian,
    nothing,
    parallel,
    poisson,
    repeated,
)

DELTA = 1e-5

PSG = [  # psg.md 3: steps and sigma at epsilon 10, then at 1; improved, then Theorem A.2
    (10_000, 0.60380, 0.62187, 2_000, 1.12397, 1.28656),
    (100_000, 0.96571, 1.00885, 20_000, 2.55296, 3.05555),
    (200_000, 1.21362, 1.27781, 40_000, 3.53271, 4.25285),
    (500_000, 1.74133, 1.84916, 100_000, 5.50980, 6.65824),
]
TABLES = []
for steps10, sigma10, classic10, steps1, sigma1, classic1 in PSG:
    TABLES += [
        ("psg 3", (256 / 60000, steps10, 10, "rdp_improved"), sigma10),
        ("psg 3 Thm A.2", (256 / 60000, steps10, 10, "rdp_classic"), classic10),
        ("psg 3", (256 / 60000, steps1, 1, "rdp_improved"), sigma1),
        ("psg 3 Thm A.2", (256 / 60000, steps1, 1, "rdp_classic"), classic1),
    ]
TABLES += [
    ("psg 3 CIFAR-10", (256 / 50000, steps, 10, "rdp_improved"), sigma)
    for steps, sigma in ((10_000, 0.63767), (100_000, 1.08418), (200_000, 1.39153))
]
TABLES += [
    ("psg 7", (256 / 60000, 1_000, 10, "rdp_improved"), 0.47806),
    ("psg 7 prior", (256 / 60000, 20_000, 10, "rdp_improved"), 0.66832),
]
STAGES = [  # records; psg.md 3 at epsilon 1, 10; dp_sgd.md 3: 10 epochs at 1, 10, 5 epochs at 1, 10
    (11339, 12.949, 1.8354, 2.1286, 0.6485, 1.6487, 0.5928),
    (12700, 11.568, 1.6675, 2.0202, 0.6359, 1.5732, 0.5829),
    (11774, 12.473, 1.7772, 2.0807, 0.6431, 1.6160, 0.5886),
    (12080, 12.158, 1.7390, 2.0720, 0.6419, 1.6089, 0.5876),
    (12107, 12.131, 1.7357, 2.0682, 0.6415, 1.6063, 0.5873),
    (12000, 12.239, 1.7488, 2.0658, 0.6413, 1.6054, 0.5872),  # Fashion-MNIST, every stage
]
for n, *row in STAGES:
    epoch = n // 256
    runs = [(20_000, 1), (20_000, 10), (10 * epoch, 1), (10 * epoch, 10), (5 * epoch, 1)]
    TABLES += [
        (f"split n={n}", (256 / n, steps, budget, "rdp_improved"), sigma)
        for (steps, budget), sigma in zip([*runs, (5 * epoch, 10)], row, strict=True)
    ]


@pytest.mark.parametrize(("where", "run", "sigma"), TABLES)
def test_published_sigma(where, run, sigma):
    digits = 10.0 ** -max(len(f"{sigma}".split(".")[1]), 3)
    q, steps, budget, accountant = run
    found = poisson_gaussian_multiplier(q, steps, budget, DELTA, accountant)
    assert found == pytest.approx(sigma, rel=1.5 * PRECISION, abs=digits)


@pytest.mark.parametrize(
    ("records", "steps", "sigma"),
    [
        (5421, 10_000, 3.8166),
        (6000, 10_000, 3.4633),
        (5000, 10_000, 4.1258),
        (68261, 10_000, 0.8639),
        (5421, 50, 1.0388),
        (6000, 50, 1.0233),
        (5000, 50, 1.0522),
        (68261, 50, 0.8010),
    ],
)
def test_published_sigma_of_dpdc(records, steps, sigma):
    """ldpdc_ndpdc.md 3: epsilon 1 lies between the neighbours of the printed sigma."""

    def found(s):
        return epsilon(
            repeated(poisson(50 / records, gaussian(s)), steps), DELTA, "rdp_improved_2000"
        )

    assert found(sigma + 1e-4) <= 1 <= found(sigma - 1e-4)


@pytest.mark.parametrize(
    ("budget", "accountant", "sigma"),
    [
        (1, "pld", 3.7306),
        (10, "pld", 0.49989),
        (1, "rdp_improved", 4.0454),
        (10, "rdp_improved", 0.5296),
        (10, "rdp_classic", 0.568),
    ],
)
def test_published_sigma_of_dp_merf(budget, accountant, sigma):
    found = noise_multiplier(gaussian, budget, DELTA, accountant)
    assert found == pytest.approx(sigma, rel=1.5 * PRECISION, abs=1e-4)


@pytest.mark.parametrize(
    ("budget", "accountant", "sigma"),
    [(10, "pld", 2.557), (10, "rdp", 2.657), (1, "rdp", 5.433)],
)
def test_published_sigma_of_gs_wgan_with_one_draw_a_step(budget, accountant, sigma):
    """FINDINGS: 32 samples share a draw of one subset in 1000, 20,000 steps."""
    found = noise_multiplier(
        lambda s: repeated(poisson(1e-3, repeated(gaussian(s), 32)), 20_000),
        budget,
        DELTA,
        accountant,
    )
    assert found == pytest.approx(sigma, rel=1.5 * PRECISION, abs=1e-3)


@settings(max_examples=12, deadline=None)
@given(
    st.floats(1e-3, 0.1),
    st.integers(1, 2000),
    st.floats(0.3, 12.0),
    st.sampled_from([1e-5, 1e-6, 1e-3]),
    st.sampled_from(["pld", "rdp", "rdp_improved", "rdp_classic"]),
)
def test_the_answer_fits_and_a_little_less_does_not(q, steps, budget, d, accountant):
    def event(sigma):
        return composed([repeated(poisson(q, gaussian(sigma)), steps), gaussian(10 * sigma)])

    sigma = noise_multiplier(event, budget, d, accountant)
    assert epsilon(event(sigma), d, accountant) <= budget
    assert epsilon(event(sigma * (1 - 2 * PRECISION)), d, accountant) > budget


def test_replace_one_fits_too_and_needs_more_noise():
    sigma = poisson_gaussian_multiplier(0.02, 300, 2.0, DELTA, relation="replace_one")
    event = repeated(poisson(0.02, gaussian(sigma)), 300)
    assert epsilon(event, DELTA, relation="replace_one") <= 2.0
    assert sigma > poisson_gaussian_multiplier(0.02, 300, 2.0, DELTA)
    once = noise_multiplier(gaussian, 1.0, DELTA, relation="replace_one")
    assert once == pytest.approx(2 * noise_multiplier(gaussian, 1.0, DELTA), rel=3 * PRECISION)


def test_classes_in_parallel_need_the_noise_of_the_smallest_class():
    counts = (5421, 5923, 6742)
    sigma = noise_multiplier(
        lambda s: parallel([repeated(poisson(50 / n, gaussian(s)), 400) for n in counts]), 1, DELTA
    )
    of_one = poisson_gaussian_multiplier(50 / 5421, 400, 1, DELTA)
    assert sigma == pytest.approx(of_one, rel=PRECISION)


def test_typical_calibrations_are_quick_and_remembered():
    start = time.process_time()
    for steps in (300, 3000, 20_000):
        first = poisson_gaussian_multiplier(256 / 12345, steps, 3, DELTA)
    assert time.process_time() - start < 10  # about 0.3 s each
    hits = poisson_gaussian_multiplier.cache_info().hits
    assert poisson_gaussian_multiplier(256 / 12345, steps, 3, DELTA) == first
    assert poisson_gaussian_multiplier.cache_info().hits == hits + 1


def test_the_noise_of_a_rate_follows_from_the_arguments_alone():
    """Processes calibrate in any order, and must find the same bits."""
    rates = [50 / records for records in (310, 500, 777, 1200, 2222)]
    found = {q: poisson_gaussian_multiplier(q, 700, 3.0, DELTA) for q in rates}
    for cache in (poisson_gaussian_multiplier, calibration._at_nodes):
        cache.cache_clear()
    accountant._epsilon.cache_clear()
    assert {q: poisson_gaussian_multiplier(q, 700, 3.0, DELTA) for q in reversed(rates)} == found


@pytest.mark.parametrize(("steps", "budget"), [(1000, 10.0), (300, 1.0)])
def test_unequal_parties_need_about_one_tight_count_each(steps, budget, monkeypatch):
    """1,000 parties took 200 s with eight slow counts each."""
    counts = 0
    count = pld.spending_epsilon

    def counted(*arguments):
        nonlocal counts
        counts += 1
        return count(*arguments)

    monkeypatch.setattr(pld, "spending_epsilon", counted)
    rates = [50 / records for records in range(701, 1001, 3)]
    start = time.process_time()
    sigmas = [poisson_gaussian_multiplier(q, steps, budget, DELTA) for q in rates]
    assert time.process_time() - start < 5  # about 0.4 s
    assert counts <= 2.2 * len(rates)  # those at the fixed rates included
    assert sigmas == sorted(sigmas, reverse=True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: noise_multiplier(gaussian, 0.0, DELTA), "epsilon must be a positive"),
        (lambda: noise_multiplier(gaussian, -1.0, DELTA), "epsilon must be a positive"),
        (lambda: noise_multiplier(gaussian, math.inf, DELTA), "discloses"),
        (lambda: noise_multiplier(gaussian, math.nan, DELTA), "epsilon must be a positive"),
        (lambda: noise_multiplier(gaussian, 1.0, 0.0), "delta"),
        (lambda: noise_multiplier(gaussian, 1.0, 1.5), "delta"),
        (lambda: noise_multiplier(gaussian, 1.0, DELTA, "moments"), "unknown accountant"),
        (lambda: noise_multiplier(lambda _: disclosed(), 1.0, DELTA), "disclosure"),
        (
            lambda: noise_multiplier(lambda s: composed([gaussian(s), gaussian(0.1)]), 1.0, DELTA),
            "no noise multiplier up to",
        ),
        (lambda: noise_multiplier(lambda _: nothing(), 1.0, DELTA), "no noise to calibrate"),
        (lambda: poisson_gaussian_multiplier(0.1, 0, 1.0, DELTA), "no noise to calibrate"),
        (lambda: poisson_gaussian_multiplier(1.1, 10, 1.0, DELTA), "sampling rate"),
    ],
)
def test_impossible_requests_are_refused_with_advice(call, says):
    with pytest.raises(UserError, match=says):
        call()


def test_the_published_mu_of_gaussian_privacy():
    """sketch_teach.md: at delta 1e-5, 0.26805 for epsilon 1 and 2.00045 for epsilon 10."""
    assert gaussian_mu(1.0, DELTA) == pytest.approx(0.26805, abs=5e-6)
    assert gaussian_mu(10.0, DELTA) == pytest.approx(2.00045, abs=5e-6)


@given(
    st.floats(0.2, 20.0),
    st.floats(0.05, 0.95),
    st.integers(1, 200),
    st.sampled_from(["pld", "rdp", "rdp_improved"]),
)
@settings(max_examples=25, deadline=None)
def test_any_split_of_mu_over_gaussians_costs_the_budget_and_no_more(target, share, steps, by):
    mu = gaussian_mu(target, DELTA, by)
    one = gaussian(1 / (mu * math.sqrt(share)))
    many = gaussian(math.sqrt(steps / (1 - share)) / mu)
    spent = epsilon(composed([one, repeated(many, steps)]), DELTA, by)
    assert target * (1 - 3e-4) <= spent <= target * (1 + 1e-9)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("target", [1e-3, 1e4, 1e7])
def test_very_large_and_very_small_budgets_have_their_noise(target, relation):
    for make in (gaussian, lambda sigma: repeated(poisson(0.01, gaussian(sigma)), 100)):
        sigma = noise_multiplier(make, target, DELTA, relation=relation)
        spent = epsilon(make(sigma), DELTA, relation=relation)
        assert target * 0.99 <= spent <= target


def test_replacing_a_record_halves_mu():
    mu = gaussian_mu(2.0, DELTA, relation="replace_one")
    assert epsilon(gaussian(1 / mu), DELTA, relation="replace_one") == pytest.approx(2.0, rel=1e-6)
    assert epsilon(gaussian(1 / mu), DELTA, relation="replace_one") <= 2.0 * (1 + 1e-9)


@given(st.floats(0.05, 5.0), st.floats(0.01, 0.2), st.floats(0.8, 4.0))
@settings(max_examples=15, deadline=None)
def test_one_step_more_than_the_largest_number_costs_more_than_the_budget(target, rate, sigma):
    def spent(steps: int) -> float:
        return epsilon(repeated(poisson(rate, gaussian(sigma)), steps), DELTA, "rdp")

    if spent(1) > target:
        with pytest.raises(UserError, match=r"one step with noise .* costs more than the budget"):
            poisson_gaussian_steps(rate, sigma, target, DELTA, "rdp")
        return
    steps = poisson_gaussian_steps(rate, sigma, target, DELTA, "rdp")
    assert spent(steps) <= target < spent(steps + 1)


def test_noise_without_end_allows_no_number_of_steps():
    with pytest.raises(UserError, match="more than 10,000,000 steps"):
        poisson_gaussian_steps(1e-4, 1e6, 10.0, DELTA, "rdp")

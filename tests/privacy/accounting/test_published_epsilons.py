"""Every epsilon that the method specifications print.

A published number is given as the text that is printed; what we compute must round to it.
"""

import math

import pytest
from countings import DELTA, MNIST, printed, sgd
from dp_accounting.pld import PLDAccountant

from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    composed,
    gaussian,
    poisson,
    repeated,
    without_replacement,
)

PUBLISHED = [
    # psg.md 3 and 7
    ("psg 7", sgd(MNIST, 0.96571, 100_000), "rdp_improved", "10.000"),
    ("psg 7", sgd(MNIST, 0.96571, 100_000), "rdp_classic", "10.853"),
    ("psg 2", sgd(MNIST, 2.55296, 20_000), "rdp_classic", "1.218"),
    ("psg 2 off by one", sgd(MNIST, 0.96571, 100_100), "rdp_improved", "10.006"),
    ("psg 2 off by one", sgd(MNIST, 2.55296, 20_100), "rdp_improved", "1.0027"),
    ("psg 7 run 10", sgd(MNIST, 0.96571, 1_000), "rdp_improved", "1.1974"),
    ("psg 7 run 100", sgd(MNIST, 0.96571, 10_000), "rdp_improved", "2.7459"),
    ("psg 7 run 200", sgd(MNIST, 0.96571, 20_000), "rdp_improved", "3.9851"),
    ("psg 7 run 500", sgd(MNIST, 0.96571, 50_000), "rdp_improved", "6.6637"),
    ("psg 7", sgd(MNIST, 1.0, 1_000), "rdp_improved", "1.0979"),
    ("psg 7", sgd(MNIST, 1.0, 1_000), "rdp_classic", "1.4533"),
    # dp_sgd.md, DP-CGAN
    ("dp-cgan", sgd(0.01, 2.1, 30_000), "rdp_improved", "4.08"),
    ("dp-cgan", sgd(0.01, 2.1, 30_000), "rdp_classic", "4.605"),
    ("dp-cgan", sgd(0.01, 2.31, 30_000), "rdp_improved", "3.62"),
    ("dp-cgan", sgd(0.01, 2.31, 30_000), "rdp_classic", "4.107"),
    ("dp-cgan", sgd(0.01, 1.232, 30_303), "rdp_classic", "9.600"),
    ("dp-cgan", sgd(0.01, 1.12, 22_977), "rdp_classic", "9.600"),
    # dp_merf.md 2 and 7
    ("dp-merf 7", gaussian(5.0), "pld", ".7255"),
    ("dp-merf 7", gaussian(5.0), "rdp_improved", ".7945"),
    ("dp-merf 7", gaussian(5.0), "rdp_classic", ".9797"),
    ("dp-merf 7", gaussian(25.0), "pld", ".1254"),
    ("dp-merf 7", gaussian(25.0), "rdp_improved_2000", ".1394"),
    ("dp-merf 7", gaussian(25.0), "rdp_classic", ".1927"),
    ("dp-merf 7", gaussian(0.568), "pld", "8.553"),
    ("dp-merf 7", gaussian(0.568), "rdp_improved", "9.189"),
    ("dp-merf 7", gaussian(0.568), "rdp_classic", "9.998"),
    ("dp-merf 7", gaussian(0.5), "pld", "9.997"),
    ("dp-merf 7", gaussian(0.5), "rdp_improved", "10.726"),
    ("dp-merf 7", gaussian(0.5), "rdp_classic", "11.597"),
    ("dp-merf 2.3", gaussian(0.5296), "rdp_improved", "10.00"),
    ("dp-merf 2.3", gaussian(4.0454), "rdp_improved", "1.0000"),
    ("dp-merf 2.3", gaussian(3.7306), "pld", "1.0000"),
    ("dp-merf 2.3", gaussian(0.49989), "pld", "10.000"),
    (
        "dp-merf 2.6",
        repeated(without_replacement(120, 1, gaussian(0.588)), 600),
        "wor_bound",
        "10.0173",
    ),
    (
        "dp-merf 2.6",
        repeated(without_replacement(120, 1, gaussian(0.686)), 2040),
        "wor_bound",
        "9.9989",
    ),
]


def gs_wgan(users, steps, sigma=1.07, rate_inside=False):
    if rate_inside:  # the 32 samples of a step share its draw
        return repeated(without_replacement(users, 1, repeated(gaussian(sigma), 32)), steps)
    return repeated(without_replacement(users, 1, gaussian(sigma)), 32 * steps)


def gs_joint(sigma):
    return repeated(poisson(1e-3, repeated(gaussian(sigma), 32)), 20_000)


def visits(n, sigma=1.07):
    return repeated(gaussian(sigma), 32 * n)


PUBLISHED += [
    # gs_wgan.md 2 and 7, FINDINGS
    ("gs-wgan 7", gs_wgan(1000, 20_000), "wor_bound", "9.992623"),
    ("gs-wgan 7", gs_wgan(866, 30_000), "wor_bound", "14.9745"),
    ("gs-wgan 7", gs_wgan(2136, 30_000), "wor_bound", "5.3372"),
    ("gs-wgan 7", gs_wgan(3400, 30_000), "wor_bound", "3.2363"),
    ("gs-wgan 2.4", gs_wgan(1000, 20_000, sigma=1.07 / 2), "wor_bound", "53.6"),
    ("gs-wgan 2.1", gs_wgan(1000, 20_000, rate_inside=True), "wor_bound", "2.97E+5"),
    ("gs-wgan 7", sgd(1e-3, 1.07, 640_000), "rdp", "4.450"),
    ("gs-wgan 7", gs_joint(1.07), "rdp", "365.73"),
    ("FINDINGS", gs_joint(1.07), "pld", "329.5"),
    ("FINDINGS", gs_joint(2.557), "pld", "10.00"),
    ("FINDINGS", gs_joint(2.657), "rdp", "10.00"),
    ("FINDINGS", gs_joint(4.706), "pld", "1.000"),
    ("FINDINGS", gs_joint(5.433), "rdp", "1.000"),
    ("gs-wgan 2.3", visits(35), "pld", "622"),
    ("gs-wgan 2.3", visits(14), "pld", "279"),
    ("gs-wgan 2.3", visits(20), "pld", "379"),
    ("FINDINGS 75 visits", visits(75), "pld", "1242"),
    ("FINDINGS one visit", visits(1, 2.83), "pld", "10.0"),
    ("FINDINGS 15 visits", visits(15, 10.95), "pld", "10.0"),
]

# ldpdc_ndpdc.md 7: sampling 50 (or L) of the smallest class, MNIST / Fashion-MNIST / CIFAR-10
SMALLEST = (5421, 6000, 5000)
NDPDC = [  # sigma, L, iterations, the three printed numbers
    (1.0, 50, 10_000, ("6.1144", "5.4427", "6.7127")),
    (0.75, 50, 10_000, ("11.765", "10.474", "12.912")),
    (1.25, 50, 10_000, ("4.149", "3.699", "4.549")),
    (1.5, 50, 10_000, ("3.159", "2.820", "3.459")),
    (2.0, 50, 10_000, ("2.151", "1.923", "2.353")),
    (1.0, 25, 10_000, ("2.797", "2.500", "3.060")),
    (1.0, 75, 10_000, ("9.818", "8.710", "10.812")),
    (1.0, 100, 10_000, ("13.881", "12.270", "15.320")),
    (1.0, 50, 2_000, ("2.629", "2.362", "2.867")),
    (1.0, 50, 4_000, ("3.726", "3.329", "4.076")),
    (1.0, 50, 6_000, ("4.621", "4.122", "5.063")),
    (1.0, 50, 8_000, ("5.404", "4.815", "5.928")),
    (1.0, 50, 50, ("1.1000", "1.0588", "1.1358")),  # LDPDC: 50 images a class
]
PUBLISHED += [
    (f"dpdc 7 L={size} n={n}", sgd(size / n_c, sigma, n), "rdp_improved_2000", text)
    for sigma, size, n, texts in NDPDC
    for n_c, text in zip(SMALLEST, texts, strict=True)
]
PUBLISHED += [
    ("ndpdc 7 CelebA", sgd(50 / 68261, 1.0, 10_000), "rdp_improved_2000", "0.7088"),
    ("ldpdc 7 CelebA", sgd(50 / 68261, 1.0, 50), "rdp_improved_2000", "0.6090"),
]


def votes(k, sigma, images):
    """DataLens: k signs a teacher, noise sigma on the vote sums, sensitivity 2 sqrt(k)."""
    return repeated(gaussian(sigma / (2 * math.sqrt(k))), images)


def gpate(threshold, vote, images):
    """G-PATE: ten coordinates an image, each a noisy threshold and a vote of sensitivity sqrt 2."""
    return repeated(composed([gaussian(threshold), gaussian(vote / math.sqrt(2))]), 10 * images)


PUBLISHED += [
    ("datalens 7", votes(200, 5000, 1), "rdp_classic_199", "0.06133"),
    ("datalens 7", votes(200, 5000, 15), "rdp_classic_199", "0.10591"),
    ("datalens 7", votes(200, 5000, 1290), "rdp_classic_199", "0.99571"),
    ("datalens 7", votes(200, 5000, 1305), "rdp_classic_199", "1.00168"),
    ("datalens 7", votes(200, 5000, 1290), "pld", "0.7381"),
    ("datalens 7", votes(300, 800, 1635), "rdp_classic_199", "9.96889"),
    ("datalens 7", votes(350, 1000, 2190), "rdp_classic_199", "9.96964"),
    ("datalens 7", votes(350, 900, 1770), "rdp_classic_199", "9.95616"),
    ("datalens 7 CelebA", votes(700, 9000, 27 * 44), "rdp_classic_199", ".99304"),
    ("datalens 7 CelebA", votes(500, 700, 27 * 27), "rdp_classic_199", "9.7887"),
    ("datalens 2.1 two teachers", votes(800, 5000, 1290), "pld", "1.58"),
    ("datalens 2.1 two teachers", votes(1200, 800, 1635), "pld", "20.4"),
]

AS_MANY_AS_FIT = [  # name, event of n, n, accountant, epsilon: n fit and n + 1 do not
    ("datalens 7 rounds", lambda n: votes(200, 5000, 15 * n), 86, "rdp_classic_199", 1),
    ("datalens 7 rounds", lambda n: votes(300, 800, 15 * n), 109, "rdp_classic_199", 10),
    ("datalens 7 rounds", lambda n: votes(350, 1000, 15 * n), 146, "rdp_classic_199", 10),
    ("datalens 7 rounds", lambda n: votes(350, 900, 15 * n), 118, "rdp_classic_199", 10),
    ("datalens 7 CelebA", lambda n: votes(700, 9000, 27 * n), 44, "rdp_classic_199", 1),
    ("datalens 7 CelebA", lambda n: votes(500, 700, 27 * n), 27, "rdp_classic_199", 10),
    ("datalens 7 GM-DP", lambda n: sgd(128 / 60000, 8.2, n), 3524, "rdp_improved_2000", 0.05),
    ("datalens 7 GM-DP", lambda n: sgd(512 / 60000, 3.4, n), 448, "rdp_improved_2000", 0.2),
    ("datalens 7 GM-DP", lambda n: sgd(512 / 60000, 1.8, n), 2193, "rdp_improved_2000", 1),
    ("g-pate", lambda n: gpate(600, 100, n), 1519, "rdp_classic_199", 10),
    ("g-pate", lambda n: gpate(3000, 1000, n), 1971, "rdp_classic_199", 1),
    ("dp-cgan", lambda n: sgd(0.01, 1.232, n), 30_303, "rdp_classic", 9.6),
    ("dp-cgan", lambda n: sgd(0.01, 1.12, n), 22_977, "rdp_classic", 9.6),
]


@pytest.mark.parametrize(("where", "event", "accountant", "text"), PUBLISHED)
def test_published_epsilon(where, event, accountant, text):
    assert epsilon(event, DELTA, accountant) == printed(text)


@pytest.mark.parametrize(("where", "event", "n", "accountant", "budget"), AS_MANY_AS_FIT)
def test_published_number_of_steps(where, event, n, accountant, budget):
    assert epsilon(event(n), DELTA, accountant) <= budget
    assert epsilon(event(n + 1), DELTA, accountant) > budget


@pytest.mark.parametrize(
    ("q", "sigma", "steps_an_epoch", "epochs"),
    [(50 / 60000, 1.1, 1200, 2872), (50 / 60000, 0.9, 1200, 1510), (200 / 162770, 0.8, 813, 656)],
)
def test_published_epochs_of_dp_sinkhorn(q, sigma, steps_an_epoch, epochs):
    """Printed as about: the last epoch may or may not fit."""
    found = [
        epsilon(sgd(q, sigma, steps_an_epoch * n), DELTA, "rdp_classic_sparse")
        for n in (epochs - 1, epochs + 1)
    ]
    assert found[0] <= 10 < found[1]


@pytest.mark.parametrize(
    ("sigma", "steps", "text"), [(0.96571, 100_000, "9.3176"), (2.55296, 20_000, "0.9409")]
)
def test_printed_tight_numbers_are_those_of_a_coarse_cut(sigma, steps, text):
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(sgd(MNIST, sigma, steps))
    assert accountant.get_epsilon(DELTA) == printed(text)

"""Poisson samples: their rate, their independence, and the ends of the range."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.poisson_sampling import poisson_sample

KEY = NoiseKey.from_seed(7, "party 0")


def test_poisson_samples_have_the_rate_and_draw_records_independently():
    rate, records, draws = 0.1, 500, 2000
    hits = np.zeros(records)
    sizes = []
    for i in range(draws):
        sample = KEY.stream("poisson", i).poisson_sample(records, rate).numpy()
        hits[sample] += 1
        sizes.append(len(sample))
    assert np.mean(sizes) == pytest.approx(records * rate, rel=0.02)
    assert np.var(sizes) == pytest.approx(records * rate * (1 - rate), rel=0.15)
    expected = draws * rate
    assert stats.chisquare(hits, np.full(records, hits.mean())).pvalue > 1e-4
    assert abs(hits.mean() - expected) < 5 * np.sqrt(expected)


def test_rate_one_takes_every_record():
    assert KEY.stream("all").poisson_sample(5, 1.0).tolist() == [0, 1, 2, 3, 4]


def test_a_record_enters_if_its_word_is_below_the_rate():
    words = np.array([0, 2**62 - 1, 2**62, 2**64 - 1], dtype=np.uint64)
    assert poisson_sample(lambda n: words[:n], 4, 0.25).tolist() == [0, 1]
    assert poisson_sample(lambda n: words[:n], 4, 0.0).tolist() == []


def test_a_further_record_changes_the_fate_of_no_other():
    """Else neighbouring data sets would differ in more than one record of the sample."""
    few = KEY.stream("more").poisson_sample(100, 0.3).tolist()
    many = KEY.stream("more").poisson_sample(101, 0.3).tolist()
    assert [index for index in many if index < 100] == few

"""A mechanism states the units that it bounds, and refuses every other one."""

from __future__ import annotations

import pytest
import torch
from guarded import guard
from torch import nn

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian, gaussian_in_ball, poisson
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum, SecondMoments
from fedsynth.privacy.mechanisms.sample_function import SampleFunction
from fedsynth.privacy.mechanisms.sums import ClassSums, RecordSum
from fedsynth.privacy.mechanisms.upstream_gradients import UpstreamGradients
from fedsynth.privacy.party_data import Sealed
from fedsynth.privacy.subsets import Subset

ROWS = Sealed((torch.ones(2, 3), torch.ones(2, 3)))
SUMS = {"contribution": lambda pixels, _: pixels.flatten(1), "width": 3, "clip": 1.0}
OF_RECORDS = [
    RecordSum(noise_multiplier=2.0, sampling_rate=0.5, **SUMS),
    ClassSums(noise_multiplier=2.0, sampling_rates={0: 0.5}, **SUMS),
    ClippedGradientSum(
        noise_multiplier=2.0, sampling_rate=0.5, model=nn.Linear(3, 1), inputs=max, clip=1.0
    ),
    OuterProductSum(noise_multiplier=2.0, factors=ROWS, shape=[3, 3], clip=1.0),
    SecondMoments(noise_multiplier=2.0, rows=ROWS, width=3, groups=1, clip=1.0),
    SampleFunction(noise_multiplier=2.0, sampling_rate=0.5, function=max, shape=[1], clip=1.0),
]


@pytest.mark.parametrize("mechanism", OF_RECORDS, ids=lambda m: type(m).__name__)
def test_a_sum_over_records_bounds_no_user(mechanism):
    sampled = isinstance(mechanism, (RecordSum, ClassSums, ClippedGradientSum, SampleFunction))
    one = gaussian_in_ball(2.0) if isinstance(mechanism, SampleFunction) else gaussian(2.0)
    expected = poisson(0.5, one) if sampled else one
    assert mechanism.event(Unit.RECORD) == expected
    with pytest.raises(UserError, match=f"unit=user: {type(mechanism).__name__} bounds what one"):
        mechanism.event(Unit.USER)


def test_gradients_of_a_subset_bound_a_user_who_pays_for_the_whole_party():
    mechanism = UpstreamGradients(
        noise_multiplier=2.0, gradients=max, shape=[2, 3], subset=Subset("cut", 1, 4), clip=1.0
    )
    assert mechanism.event(Unit.USER) == gaussian_in_ball(2.0)
    assert mechanism.event(Unit.RECORD) == mechanism.subset.event(gaussian_in_ball(2.0), "record")


def test_the_guard_of_a_user_charges_nothing_for_a_mechanism_of_records(tmp_path):
    data = Records(torch.zeros(2, 1, 1, 3), torch.tensor([0, 0]))
    private = Sealed(data)
    gate = guard(tmp_path, budget=Budget(10.0, 1e-5, unit=Unit.USER))
    with pytest.raises(UserError, match="unit=user"):
        gate.apply(OF_RECORDS[0], private)
    with pytest.raises(PermissionError, match="nothing was charged"):
        gate.release({})

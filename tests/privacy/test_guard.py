"""Private gradients against naive ones, and what the guard asks of every mechanism."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from guarded import KEY, guard, private, records
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.messages import Request
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, PartyPlan
from fedsynth.core.types import Budget, DatasetInfo
from fedsynth.data.normalization import Normalizer
from fedsynth.data.records import Records
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy.accounting.events import (
    disclosed,
    gaussian,
    poisson,
    repeated,
    to_json,
)
from fedsynth.privacy.answered_sums import AnsweredSums
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import CentralNoise
from fedsynth.privacy.ledger import BudgetExceeded, LedgerConflict, read_charges, read_entries
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum, gradient_sensitivity
from fedsynth.privacy.noise import NoiseKey

FACTS = DatasetInfo("tiny", (1, 8, 8), 4, (0.5,), (0.25,))


SCALE = Normalizer.standard(FACTS)


def net() -> nn.Module:
    return make_convnet(4, FACTS, 4, "test")


def gradient_sum(**changes) -> ClippedGradientSum:
    terms = {"clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 1.0, **changes}
    return ClippedGradientSum(model=net(), inputs=lambda x, _: SCALE.to_network(x), **terms)


def naive_clipped_sum(model: nn.Module, data: Records, clip: float) -> list[torch.Tensor]:
    """One record after another, in float64."""
    model = model.double()
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for image, label in zip(data.pixels().double(), data.labels, strict=True):
        loss = F.cross_entropy(model(SCALE.to_network(image[None])), label[None])
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float((s**2).sum()) for s in slopes))
        sums = [a + s * min(1.0, clip / norm) for a, s in zip(sums, slopes, strict=True)]
    return sums


def test_the_noiseless_gradient_is_the_naive_clipped_sum(tmp_path):
    data = records(9)
    mechanism = gradient_sum(clip=0.1, noise_multiplier=1e-9)
    sums = guard(tmp_path).apply(mechanism, private(data, tmp_path))
    for got, expected in zip(sums, naive_clipped_sum(net(), data, 0.1), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)


def gradient(
    path: Path,
    data: Records,
    clip: float = 0.1,
    noise_at: NoisePlacement = NoisePlacement.PARTY,
) -> torch.Tensor:
    mechanism = gradient_sum(clip=clip)
    sums = guard(path).apply(mechanism, private(data, path), noise_at=noise_at)
    return torch.cat([s.flatten() for s in sums])


def test_the_noise_has_the_promised_scale_and_is_there_for_an_empty_sample(tmp_path):
    home = private(records(0), tmp_path)
    mechanism = gradient_sum(clip=0.5, noise_multiplier=3.0)
    sums = [guard(tmp_path).apply(mechanism, home, call=i) for i in range(50)]
    noise = torch.cat([s.flatten() for draw in sums for s in draw])
    assert noise.std().item() == pytest.approx(1.5, rel=0.03)
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 50


@given(st.integers(0, 10_000), st.floats(1e-3, 10.0))
@settings(max_examples=15, deadline=None)
def test_one_record_moves_a_gradient_sum_by_at_most_the_clip(tmp_path_factory, seed, clip):
    """The same secret, so the same noise on both sides: what is left is the record."""
    path = tmp_path_factory.mktemp("guard")
    data = records(6, seed)
    fewer = Records(data.images[:-1], data.labels[:-1])
    with_it = gradient(path, data, clip=clip)
    without = gradient(path, fewer, clip=clip)
    assert (with_it - without).norm().item() <= clip * (1 + 1e-4) + 1e-5


def test_the_event_is_on_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    seen = []
    stream = NoiseKey.stream

    def spy(self, *purpose):
        seen.append(len(read_entries(tmp_path / "ledger.jsonl")))
        return stream(self, *purpose)

    monkeypatch.setattr(NoiseKey, "stream", spy)
    gradient(tmp_path, records(3))
    assert seen
    assert all(entries == 1 for entries in seen)


def test_a_refused_charge_draws_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(NoiseKey, "stream", lambda *_: pytest.fail("noise was drawn"))
    poor = guard(tmp_path, budget=Budget(0.01, 1e-5))
    with pytest.raises(BudgetExceeded):
        poor.apply(gradient_sum(noise_multiplier=1.0), private(records(3), tmp_path))


def test_noise_differs_by_request_data_and_call_and_repeats_otherwise(tmp_path):
    def draw(call: int = 0, **who) -> torch.Tensor:
        home = private(records(0), tmp_path)
        sums = guard(tmp_path, **who).apply(gradient_sum(noise_multiplier=1.0), home, call=call)
        return torch.cat([s.flatten() for s in sums])

    first = draw()
    assert torch.equal(first, draw())
    for other in (draw(digest="e"), draw(data="g"), draw(call=1)):
        assert not torch.equal(first, other)


def test_a_reservation_pays_once_and_holds_to_its_terms(tmp_path):
    some = guard(tmp_path)
    home = private(records(4), tmp_path)
    half = gradient_sum(sampling_rate=0.5)
    with some.reserve(poisson(0.5, gaussian(2.0)), 2):
        some.apply(half, home, call=0)
        with pytest.raises(PermissionError, match="used already"):
            some.apply(half, home, call=0)
        with pytest.raises(PermissionError, match="not reserved"):
            some.apply(half, home, call=2)
        with pytest.raises(PermissionError, match="another event"):
            some.apply(gradient_sum(sampling_rate=0.5, noise_multiplier=1.0), home, call=1)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(repeated(poisson(0.5, gaussian(2.0)), 2))


def test_noise_at_the_aggregate_is_charged_for_the_public_view_and_added_once(tmp_path):
    data = records(5)
    placed = gradient(tmp_path, data, noise_at=NoisePlacement.AGGREGATE)
    assert placed.dtype == torch.int64
    bare = FixedPointGrid.of(gradient_sensitivity(0.1), placed.numel()).read(placed)
    naive = torch.cat([s.flatten() for s in naive_clipped_sum(net(), data, 0.1)])
    torch.testing.assert_close(bare.double(), naive, rtol=1e-4, atol=1e-6)
    assert read_entries(tmp_path / "ledger.jsonl")[0].view == PUBLIC_VIEW.text
    aggregator = CentralNoise(KEY, 0, "job", AnsweredSums(tmp_path / "answered"))
    zeros = [torch.zeros(20_000, dtype=torch.int64)]
    first = aggregator.add(zeros, sensitivity=0.5, noise_multiplier=4.0, request=Request(round=1))
    other = aggregator.add(zeros, sensitivity=0.5, noise_multiplier=4.0, request=Request(round=2))
    assert first[0].std().item() == pytest.approx(2.0, rel=0.05)
    assert not torch.equal(first[0], other[0])
    terms = {"sensitivity": 0.5, "noise_multiplier": 4.0, "request": Request(round=1)}
    assert torch.equal(aggregator.add(zeros, **terms)[0], first[0])
    for stage, job in ((1, "job"), (0, "the job with other settings")):
        fresh = AnsweredSums(tmp_path / f"{stage}-{job}")
        apart = CentralNoise(KEY, stage, job, fresh).add(zeros, **terms)
        assert not torch.equal(apart[0], first[0]), "two stages or jobs shared their noise"
    with pytest.raises(PermissionError, match="other sums"):
        aggregator.add([torch.ones(20_000, dtype=torch.int64)], **terms)
    again = CentralNoise(KEY, 0, "job", AnsweredSums(tmp_path / "answered"))
    with pytest.raises(PermissionError, match="other sums"):
        again.add([torch.ones(20_000, dtype=torch.int64)], **terms)


def test_two_uses_in_one_answer_must_be_numbered_apart(tmp_path):
    """Under one number the second would pass for a replay: uncharged, and with the same noise."""
    some, home = guard(tmp_path), private(records(4), tmp_path)
    half = gradient_sum(sampling_rate=0.5)
    some.apply(half, home)
    with pytest.raises(PermissionError, match="used already"):
        some.apply(half, home)
    some.apply(half, home, call=1)
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 2
    with some.reserve(poisson(0.5, gaussian(2.0)), 2):
        pass
    with pytest.raises(PermissionError, match="used already"), some.reserve(gaussian(2.0), 1):
        pass


def test_nothing_is_released_that_nothing_was_charged_for(tmp_path):
    with pytest.raises(PermissionError, match="nothing was charged"):
        guard(tmp_path).release({"images": torch.zeros(1)})


def test_a_release_names_the_entries_that_paid_for_it(tmp_path):
    some = guard(tmp_path)
    some.disclose(private(records(2), tmp_path))
    release = some.release({"x": torch.zeros(1)})
    assert release.entries == tuple(e.hash for e in read_charges(tmp_path / "ledger.jsonl"))


def test_the_ledger_records_what_left_and_refuses_another_answer(tmp_path):
    """Same request, same data, other values: with the same noise they would show a difference."""
    for _ in range(2):
        some = guard(tmp_path)
        some.apply(gradient_sum(), private(records(4), tmp_path))
        release = some.release({"x": torch.zeros(2)}, {"n": 1})
    *_, last = read_entries(tmp_path / "ledger.jsonl")
    assert last.payload == f"sha256:{release.payload_hash()}"
    others = [
        ({"x": torch.ones(2)}, {"n": 1}),
        ({"y": torch.zeros(2)}, {"n": 1}),
        ({"x": torch.zeros(2, dtype=torch.float64)}, {"n": 1}),
        ({"x": torch.zeros(1, 2)}, {"n": 1}),
        ({"x": torch.zeros(2)}, {"n": 2}),
    ]
    for arrays, scalars in others:
        some = guard(tmp_path)
        some.apply(gradient_sum(), private(records(4), tmp_path))
        with pytest.raises(LedgerConflict, match="other values"):
            some.release(arrays, scalars)
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 2


def test_the_hash_of_sums_without_their_noise_is_keyed(tmp_path):
    """A plain hash of few possible values would tell which one it is."""
    some = guard(tmp_path)
    values = some.apply(
        gradient_sum(), private(records(4), tmp_path), noise_at=NoisePlacement.AGGREGATE
    )
    release = some.release({"x": values[0]})
    *_, last = read_entries(tmp_path / "ledger.jsonl")
    assert last.payload.startswith("hmac-sha256:")
    assert release.payload_hash() not in last.line()


def test_other_records_get_other_noise_and_pay(tmp_path):
    """The noise is keyed by the entry and by the data, as the entry is."""
    answers = [
        guard(tmp_path, data=data).apply(gradient_sum(), private(records(0), tmp_path))[0]
        for data in ("before", "after", "before")
    ]
    assert torch.equal(answers[0], answers[2])
    assert not torch.equal(answers[0], answers[1])
    assert len(read_charges(tmp_path / "ledger.jsonl")) == 2


def test_a_reservation_is_for_one_view(tmp_path):
    """Otherwise sums without noise would leave under an entry that the server's view paid for."""
    some, home = guard(tmp_path), private(records(4), tmp_path)
    half = gradient_sum(sampling_rate=0.5)
    with (
        some.reserve(poisson(0.5, gaussian(half.noise_multiplier)), 2),
        pytest.raises(PermissionError, match="view"),
    ):
        some.apply(half, home, noise_at=NoisePlacement.AGGREGATE)


WITHOUT_NOISE = PartyPlan(0, 1, repeated(disclosed(), 9), shares=3, without_noise=True)


@pytest.mark.parametrize("noise_at", list(NoisePlacement))
def test_without_noise_the_clipped_sum_leaves_and_is_charged_as_a_disclosure(tmp_path, noise_at):
    """At every placement the same exact sum, and the server's view pays for it."""
    data = records(9)
    some, mechanism = guard(tmp_path, plan=WITHOUT_NOISE), gradient_sum(clip=0.1)
    with some.reserve(mechanism.event("record"), 2):
        sums = some.apply(mechanism, private(data, tmp_path), call=1, noise_at=noise_at)
    if noise_at != NoisePlacement.PARTY:
        numbers = sum(value.numel() for value in sums)
        sensitivity = gradient_sensitivity(0.1)
        grid = FixedPointGrid.of(sensitivity, numbers)
        sums = [grid.read(value) for value in sums]
    for got, expected in zip(sums, naive_clipped_sum(net(), data, 0.1), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)
    (entry,) = read_charges(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(repeated(disclosed(), 2))
    assert entry.view == SERVER_VIEW.text


def test_no_finite_budget_pays_for_a_sum_without_noise(tmp_path):
    some = guard(tmp_path, plan=WITHOUT_NOISE, budget=Budget(1e6, 1e-5))
    with pytest.raises(BudgetExceeded, match="epsilon=inf"):
        some.apply(gradient_sum(), private(records(2), tmp_path))
    assert not read_charges(tmp_path / "ledger.jsonl")

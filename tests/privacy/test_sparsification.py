"""Largest coordinates of per-record gradients: against loops, and never longer than promised."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fedsynth.core.errors import UserError
from fedsynth.nn.classifiers.convnet import ConvNet
from fedsynth.privacy.sparsification import Rule, Sparsification, largest, sparse_gradient_sum

KEEPS = st.sampled_from([0.1, 0.3, 0.6, 0.9, 1.0])


def rows(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn((n, d), generator=torch.Generator().manual_seed(seed)) ** 3


def naive(row: list[float], rule: str, keep: float) -> list[float]:
    """One coordinate after the other, from the largest on."""
    order = sorted(range(len(row)), key=lambda i: -abs(row[i]))
    kept = [0.0] * len(row)
    budget = keep * sum(v * v for v in row) if rule == "norm" else int(keep * len(row))
    rounding = 1e-6 * budget
    for i in order:
        budget -= row[i] ** 2 if rule == "norm" else 1
        if budget < -rounding:
            break
        kept[i] = row[i]
    return kept


@pytest.mark.parametrize("rule", ["norm", "dimension"])
@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 1000), KEEPS)
@settings(max_examples=40, deadline=None)
def test_the_largest_are_kept_one_after_the_other(rule, n, d, seed, keep):
    found = rows(n, d, seed)
    expected = torch.tensor([naive(row, rule, keep) for row in found.tolist()])
    torch.testing.assert_close(largest(found, Sparsification(rule, keep)), expected)


@given(st.integers(1, 30), st.integers(0, 1000), KEEPS)
@settings(max_examples=40, deadline=None)
def test_what_is_kept_by_norm_is_no_longer_than_the_root_of_the_share(d, seed, keep):
    found = rows(4, d, seed)
    kept = largest(found, Sparsification("norm", keep))
    assert (kept.norm(dim=1) <= math.sqrt(keep) * found.norm(dim=1) * (1 + 1e-5)).all()


def test_equal_coordinates_stay_or_go_together():
    row = torch.tensor([[2.0, 1.0, -1.0, 1.0, 1.0, 0.5]])
    assert largest(row, Sparsification("dimension", 0.5)).tolist() == [[2.0, 0, 0, 0, 0, 0]]
    assert largest(row, Sparsification("norm", 0.5)).tolist() == [[2.0, 0, 0, 0, 0, 0]]


def test_by_tensor_no_tensor_is_left_out():
    row = torch.tensor([[9.0, 8.0, 7.0, 0.3, 0.2, 0.1]])
    whole, by_tensor = Sparsification("norm", 0.9), Sparsification("norm_per_tensor", 0.9)
    assert largest(row, whole, [3, 3]).tolist() == [[9.0, 8.0, 0, 0, 0, 0]]
    assert torch.equal(largest(row, by_tensor, [3, 3]), torch.tensor([[9.0, 8.0, 0, 0.3, 0, 0]]))


def test_the_bound_is_that_of_the_specification():
    assert Sparsification("norm", 0.49).l2_bound(3.0) == pytest.approx(2.1)
    assert Sparsification("norm_per_tensor", 0.49).l2_bound(3.0) == pytest.approx(2.1)
    assert Sparsification("dimension", 0.49).l2_bound(3.0) == 3.0
    with pytest.raises(UserError, match="dimension"):
        Sparsification("dimensions", 0.5).l2_bound(1.0)


def batch(n: int, seed: int = 0) -> tuple[ConvNet, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net = ConvNet(4, 3, (1, 8, 8))
    generator = torch.Generator().manual_seed(seed)
    return net, torch.randn((n, 1, 8, 8), generator=generator), torch.arange(n) % 3


@pytest.mark.parametrize(
    ("rule", "keep"),
    [("norm", 0.6), ("norm_per_tensor", 0.6), ("dimension", 0.6), ("norm", 1.0)],
)
@pytest.mark.parametrize("clip", [0.1, 1e3])
def test_the_sum_is_that_of_a_loop_over_records(rule, keep, clip):
    net, images, labels = batch(5)
    expected = torch.zeros(sum(p.numel() for p in net.parameters()))
    for image, label in zip(images, labels, strict=True):
        loss = F.cross_entropy(net(image[None]), label[None])
        parts = torch.autograd.grad(loss, list(net.parameters()))
        row = torch.cat([part.flatten() for part in parts])
        row = row * min(1.0, clip / float(row.norm()))
        sizes = [p.numel() for p in net.parameters()]
        tensors = row.split(sizes) if rule == "norm_per_tensor" else [row]
        one_by_one = Sparsification("norm" if len(tensors) > 1 else rule, keep)
        expected += torch.cat([largest(part[None], one_by_one)[0] for part in tensors])
    rules = Sparsification(rule, keep)
    found = sparse_gradient_sum(net, images, labels, clip=clip, sparsification=rules)
    assert [part.shape for part in found] == [p.shape for p in net.parameters()]
    flat = torch.cat([part.flatten() for part in found])
    # Where two coordinates are all but equal, rounding decides which is kept.
    assert float((flat - expected).norm()) < 0.02 * float(expected.norm())


@given(st.integers(1, 6), st.integers(0, 50), KEEPS, st.sampled_from(list(Rule)))
@settings(max_examples=15, deadline=None)
def test_one_record_moves_the_sum_no_further_than_the_bound(n, seed, keep, rule):
    net, images, labels = batch(n, seed)
    rules = Sparsification(rule, keep)
    whole, less = (
        sparse_gradient_sum(net, images[:k], labels[:k], clip=0.1, sparsification=rules)
        for k in (n, n - 1)
    )
    squares = sum(float((a - b).square().sum()) for a, b in zip(whole, less, strict=True))
    assert math.sqrt(squares) <= rules.l2_bound(0.1) * (1 + 1e-4)


def test_no_records_give_zeros():
    net, images, labels = batch(0)
    found = sparse_gradient_sum(
        net, images, labels, clip=1.0, sparsification=Sparsification("norm", 0.5)
    )
    assert all(
        torch.equal(part, torch.zeros_like(p))
        for part, p in zip(found, net.parameters(), strict=True)
    )

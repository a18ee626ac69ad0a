"""Clipped sums against a naive loop; the bound on one record's influence against bad records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pretend_device import pretended_gpu
from torch import Tensor, nn

from fedsynth.core.errors import UserError
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.per_example.sequential import UnsupportedModel
from fedsynth.privacy.clipping import _layer_sequence, clip_rows, clipped_gradient_sum, row_norms

SMALL = (1, 8, 8)


pytestmark = pytest.mark.usefixtures("one_thread")


def naive(model: nn.Module, images: Tensor, labels: Tensor, clip: float) -> Tensor:
    """One record at a time in float64, by the definition."""
    model = model.double()
    weights = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in weights), dtype=torch.float64)
    for image, label in zip(images.double(), labels, strict=True):
        loss = F.cross_entropy(model(image.unsqueeze(0)), label.unsqueeze(0))
        found = torch.autograd.grad(loss, weights, allow_unused=True)
        gradient = torch.cat(
            [torch.zeros_like(w).flatten() if g is None else g.flatten()
             for g, w in zip(found, weights, strict=True)]
        )  # fmt: skip
        total += gradient * min(1.0, clip / float(gradient.norm()))
    model.float()
    return total


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.double().flatten() for part in parts])


def error(found: list[Tensor], expected: Tensor) -> float:
    return float((flat(found) - expected).norm() / expected.norm())


def records(n: int, shape: tuple[int, ...], classes: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    images = torch.randn(n, *shape, generator=generator) * 2 + 1
    return images, torch.randint(0, classes, (n,), generator=generator)


class Branching(nn.Module):
    """Not a chain: the general way has to take it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x.flatten(1))
        return h + self.b(h.tanh())


class Odd(nn.Module):
    """A chain that is not an `nn.Sequential`, with every layer that can be hand-written."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(2, 6, 3, stride=2, padding=2), nn.ReLU())
        self.norm = nn.GroupNorm(3, 6)
        self.two = nn.Conv2d(6, 5, (2, 3), padding=(1, 0), dilation=2, bias=False)
        self.plain = nn.InstanceNorm2d(5)
        self.pool = nn.AvgPool2d(2)
        self.flatten = nn.Flatten()
        self.out = nn.Sequential(nn.Identity(), nn.Linear(15, 7), nn.ReLU(), nn.Linear(7, 4, False))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.one(x))
        return self.out(self.flatten(self.pool(self.plain(self.two(x)))))


def block_with_unusual_start() -> nn.Module:
    """The first block with windows of three, three channels and negative, zero and large scales."""
    norm = nn.InstanceNorm2d(4, affine=True)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([-1.0, 0.0, 3.0, 0.5]))
        norm.bias.copy_(torch.tensor([0.5, -0.2, 0.0, 2.0]))
    return nn.Sequential(
        nn.Conv2d(3, 4, (3, 1), padding=(2, 0), bias=False),
        norm, nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


def implementation(model: nn.Module, shape: tuple[int, ...]) -> str:
    """The implementation that `clipped_gradient_sum` uses for this model and shape, and why."""
    try:
        _layer_sequence(model, shape, "float32")
    except UnsupportedModel as reason:
        return f"general way: {reason}"
    return "hand-written"


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, str]] = {
    "convnet": (lambda: make_convnet(8, (1, 28, 28), 10, 0), (1, 28, 28), 10, "hand-written"),
    "colour": (lambda: make_convnet(8, (3, 32, 32), 7, 0), (3, 32, 32), 7, "hand-written"),
    "odd chain": (Odd, (2, 9, 9), 4, "hand-written"),
    "unusual block": (block_with_unusual_start, (3, 7, 12), 10, "hand-written"),
    "starts with relu": (
        lambda: nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)), SMALL, 5, "hand-written",
    ),
    "uneven pool": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 3)),
        SMALL, 3, "hand-written",
    ),
    "branching": (Branching, SMALL, 6, "more than call layers"),
    "max pool": (
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 5)),
        SMALL, 5, "hand-written",
    ),
    "overlapping max pools": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d((3, 2), (2, 1)), nn.ReLU(),
            nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(36, 5),
        ),
        SMALL, 5, "hand-written",
    ),
    "padded max pool": (
        lambda: nn.Sequential(nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(25, 5)),
        SMALL, 5, "general way",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_the_naive_loop(name: str) -> None:
    make, shape, classes, way = CASES[name]
    torch.manual_seed(1)
    model = make()
    assert way in implementation(model, shape)
    images, labels = records(13, shape, classes)
    before = images.clone()
    for clip in (0.05, 2.0, 1e6):
        expected = naive(model, images, labels, clip)
        found = clipped_gradient_sum(model, images, labels, clip=clip, chunk=8)
        assert [f.shape for f in found] == [p.shape for p in model.parameters()]
        assert error(found, expected) < 1e-5
        coarse = clipped_gradient_sum(model, images, labels, clip=clip, chunk=8, dtype="bfloat16")
        assert error(coarse, expected) < 0.1
    assert torch.equal(images, before)


@pytest.mark.parametrize("model", [make_convnet(4, SMALL, 10, 0), Branching()])
@pytest.mark.parametrize(("supported", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_what_the_machine_is_fast_at(
    model: nn.Module, supported: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsynth.nn.compute_dtype._has_bfloat16", lambda _: supported)
    images, labels = records(9, SMALL, 6)
    chosen, named = (
        clipped_gradient_sum(model, images, labels, clip=0.1, dtype=name)
        for name in ("auto", dtype)
    )
    assert all(torch.equal(a, b) for a, b in zip(chosen, named, strict=True))


def test_a_type_that_is_not_there_is_named() -> None:
    images, labels = records(1, SMALL)
    with pytest.raises(UserError, match=r"unknown dtype 'float16'. Did you mean 'bfloat16'"):
        clipped_gradient_sum(Branching(), images, labels, clip=0.1, dtype="float16")


def test_chunks_and_their_tails_do_not_matter() -> None:
    model = make_convnet(8, SMALL, 10, 0)
    for n in (1, 7, 8, 9, 33):
        images, labels = records(n, SMALL)
        expected = naive(model, images, labels, 0.1)
        for chunk in (1, 8, 32):
            found = clipped_gradient_sum(model, images, labels, clip=0.1, chunk=chunk)
            assert error(found, expected) < 1e-5


@pytest.mark.parametrize("model", [make_convnet(4, SMALL, 10, 0), Branching()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_empty_batch_gives_exact_zeros(model: nn.Module, dtype: str) -> None:
    images, labels = records(0, SMALL)
    found = clipped_gradient_sum(model, images, labels, clip=0.1, dtype=dtype)
    assert all(
        torch.equal(f, torch.zeros_like(p)) for f, p in zip(found, model.parameters(), strict=True)
    )


def test_frozen_weights_get_nothing_and_do_not_count() -> None:
    model = make_convnet(4, SMALL, 10, 0)
    for p in model.features.parameters():
        p.requires_grad_(False)
    images, labels = records(5, SMALL)
    found = clipped_gradient_sum(model, images, labels, clip=0.01)
    assert [f.shape for f in found] == [p.shape for p in model.classifier.parameters()]
    assert error(found, naive(model, images, labels, 0.01)) < 1e-5
    assert "frozen" in implementation(model, SMALL)


def test_a_loss_of_ones_own() -> None:
    model = make_convnet(4, SMALL, 10, 0)
    images, labels = records(6, SMALL)

    def squared(logits: Tensor, targets: Tensor) -> Tensor:
        return (logits - F.one_hot(targets, 10)).square().sum(1)

    found = clipped_gradient_sum(model, images, labels, clip=1e6, loss=squared)
    expected = torch.autograd.grad(squared(model(images), labels).sum(), list(model.parameters()))
    assert error(found, flat(list(expected))) < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["hand-written", "general"])
@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 20),
    position=st.integers(0, 19),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e4, 1e15, 1e30, float("inf"), float("nan")]),
    stretch=st.sampled_from([1e-6, 1.0, 1e6]),
    clip=st.sampled_from([1e-3, 0.1, 10.0]),
)
def test_one_record_changes_the_sum_by_at_most_clip(
    *, dtype: str, kind: str, n: int, position: int, scale: float, stretch: float, clip: float
) -> None:
    model = make_convnet(4, SMALL, 10, 0) if kind == "hand-written" else Branching()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(stretch)
    images, labels = records(n, SMALL, 6)
    position %= n
    images[position] *= scale
    rest = [i for i in range(n) if i != position]
    options: dict[str, Any] = {"clip": clip, "dtype": dtype, "chunk": 8}
    with_record = flat(clipped_gradient_sum(model, images, labels, **options))
    without = flat(clipped_gradient_sum(model, images[rest], labels[rest], **options))
    assert with_record.isfinite().all()
    rounding = 1e-6 * n * clip
    assert float((with_record - without).norm()) <= clip + rounding
    if not torch.isfinite(images[position]).all():
        assert float((with_record - without).norm()) <= rounding


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_record_alone_stays_within_clip_exactly(dtype: str) -> None:
    model = make_convnet(16, (1, 28, 28), 10, 0)
    images, labels = records(12, (1, 28, 28))
    for image, label in zip(images.split(1), labels.split(1), strict=True):
        found = clipped_gradient_sum(model, image, label, clip=0.1, dtype=dtype)
        assert 0.0999 < float(flat(found).norm()) <= 0.1


@pytest.mark.parametrize("clip", [1e-4, 1e-6, 1e-8, 1e-11])
def test_weights_that_a_server_chose_lift_no_record_above_its_clip(clip: float) -> None:
    """Huge pixels at a class that is all but certain: factors of 1e19 and 1e-23, whose squares are
    beyond float32. A norm of zero for them left the gradient of 3e-4 as it is."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[5.2e-18], [0.0]]))
    image, label = torch.full((1, 1, 1, 1), 1e19), torch.zeros(1, dtype=torch.int64)
    found = clipped_gradient_sum(model, image, label, clip=clip)
    assert 0.999 * clip < float(flat(found).norm()) <= clip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_record_does_not_feel_its_neighbours(dtype: str) -> None:
    """A record's share is the same in any company, place and size of batch: to float32 rounding
    even in bfloat16, where an intermediate rounded the other way would show as 1e-3."""
    model = make_convnet(16, (1, 28, 28), 10, 0)
    images, labels = records(41, (1, 28, 28))
    options: dict[str, Any] = {"clip": 0.1, "dtype": dtype}
    alone = flat(clipped_gradient_sum(model, images[:1], labels[:1], **options))
    nobody = torch.full_like(images, float("nan"))
    nobody[0] = images[0]
    for n in (2, 8, 9, 17, 32, 41):
        company = flat(clipped_gradient_sum(model, nobody[:n], labels[:n], **options))
        assert float((company - alone).norm()) < 1e-6 * 0.1
        last = torch.cat([nobody[1:n], images[:1]])
        order = torch.cat([labels[1:n], labels[:1]])
        found = flat(clipped_gradient_sum(model, last, order, **options))
        assert float((found - alone).norm()) < 1e-6 * 0.1


def test_batch_norm_is_refused_with_a_text_that_helps() -> None:
    images, labels = records(2, SMALL)
    for norm in (nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False)):
        model = nn.Sequential(nn.Conv2d(1, 3, 3), norm, nn.Flatten(), nn.Linear(108, 10))
        with pytest.raises(UserError, match=r"layer '1' is BatchNorm2d.*GroupNorm"):
            clipped_gradient_sum(model, images, labels, clip=0.1)
    tracking = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), tracking, nn.Flatten(), nn.Linear(108, 10)).eval()
    with pytest.raises(UserError, match="running stats"):
        clipped_gradient_sum(model, images, labels, clip=0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": "bfloat"}, "bfloat16"),
        ({"loss": "cross_entropi"}, "cross_entropy"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
    ],
)
def test_wrong_options_name_the_right_ones(wrong: dict[str, Any], message: str) -> None:
    images, labels = records(2, SMALL)
    with pytest.raises(UserError, match=message):
        clipped_gradient_sum(
            make_convnet(4, SMALL, 10, 0), images, labels, **{"clip": 1.0, **wrong}
        )


@given(
    values=st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=5),
    bound=st.floats(1e-3, 1e3),
)
@example(values=[[0.0, 0.0, 1.0]], bound=1.001)
@settings(max_examples=60, deadline=None)
def test_clip_rows_bounds_every_row(values: list[list[float]], bound: float) -> None:
    rows = torch.tensor(values, dtype=torch.float32)
    clipped = clip_rows(rows, bound)
    assert (row_norms(clipped) <= bound).all()
    for row, result in zip(rows.double(), clipped.double(), strict=True):
        if not row.isfinite().all():
            assert torch.equal(result, torch.zeros(3, dtype=torch.float64))
        elif float(row.norm()) <= 0.999 * bound:
            assert torch.equal(result, row)
        else:
            factor = min(1.0, bound / float(row.norm()))
            assert torch.allclose(result, row * factor, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_16_bits_stay_within_their_bound(dtype: torch.dtype) -> None:
    rows = (3 * torch.randn(2000, 50, generator=torch.Generator().manual_seed(1))).to(dtype)
    assert (row_norms(clip_rows(rows, 1.0)) <= 1.0).all()


def test_a_gpu_clips_as_the_cpu_and_is_asked_nothing() -> None:
    """Where it differs, on rows whose factor float32 cannot hold in full, it adds nothing."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 5, generator=generator) * 3
    rows[1, 2], rows[2, 0], rows[3] = float("nan"), float("inf"), 0.0
    rows[4] = torch.tensor([3e38, -3e38, 1.0, 0.0, 3e38])
    net = make_convnet(2, (1, 8, 8), 3, "gpu")
    images, labels = torch.randn(9, 1, 8, 8, generator=generator), torch.arange(9) % 3
    images[5] = float("nan")
    expected, sums = clip_rows(rows, 0.5), clipped_gradient_sum(net, images, labels, clip=0.1)
    with pretended_gpu() as gpu:
        clipped = clip_rows(rows.to("cuda"), 0.5)
        tiny = clip_rows(rows.to("cuda"), 1e-6)
        there = net.to("cuda"), images.to("cuda"), labels.to("cuda")
        found = clipped_gradient_sum(*there, clip=0.1)
        assert gpu.operations
        assert not gpu.syncs
    assert float(row_norms(clipped).max()) <= 0.5
    assert float(row_norms(tiny).max()) <= 1e-6
    assert not tiny[4].any()
    usual = [0, 1, 2, 3, 5, 6, 7]
    assert torch.equal(clipped[usual], expected[usual])
    for one, other in zip(found, sums, strict=True):
        torch.testing.assert_close(one, other)

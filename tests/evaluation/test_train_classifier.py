"""train_and_test: it learns, it is reproducible anywhere, and it tells the truth about itself."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import pickle
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import train_classifier as downstream
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import protocol
from fedsynth.evaluation.train_classifier import score_model, train_and_test
from fedsynth.evaluation.types import EvalResult, positions, targets, used
from fedsynth.nn.classifiers.convnet import ConvNet

FACTS = DatasetInfo("shapes", (1, 16, 16), 6, (0.2,), (0.4,))
ORDER = (5, 0, 3)
QUICK = EvaluationConfig(width=8, epochs=12, nets=1)


def bars(n: int, seed: int) -> SyntheticSet:
    """Class c of ORDER is a bright bar at a height of its own, with noise."""
    g = torch_generator("bars", seed)
    places = torch.arange(n) % len(ORDER)
    x = 0.2 * torch.rand(n, 1, 16, 16, generator=g)
    for image, place in zip(x, places.tolist(), strict=True):
        image[0, 2 + 5 * place : 5 + 5 * place] += 0.7
    return SyntheticSet(x, torch.tensor(ORDER)[places])


def run(setting: EvaluationConfig = QUICK, **changed: object) -> EvalResult:
    train, test = bars(60, 0), bars(45, 1)
    arguments = {
        "train": train,
        "test_images": test.images,
        "test_labels": test.labels,
        "order": ORDER,
        "facts": FACTS,
        "setting": setting,
        "key": (0, "evaluation", 1),
    } | changed
    return train_and_test(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "epochs"), [("P", 60), ("D", 60), ("S", 150)])
def test_learns_what_is_there(name: str, epochs: int) -> None:
    result = run(replace(QUICK, protocol=name, epochs=epochs))
    assert result.accuracy > 0.9
    assert result.per_class.keys() == set(ORDER)
    assert all(tested == 15 for _, tested in result.per_class.values())
    assert (result.protocol, result.epochs, result.steps) == (name, epochs + 1, epochs + 1)
    assert (result.width, result.images) == (8, 60)
    assert result.seconds > 0
    assert result.batch == protocol(name).batch
    assert run(replace(QUICK, batch=16)).steps == 13 * 4


def test_coarse_arithmetic_learns_it_too_and_is_named() -> None:
    coarse = replace(QUICK, epochs=60, dtype="bfloat16")
    result = run(coarse)
    assert result.accuracy > 0.9
    assert "bfloat16" in coarse.describe(60)
    assert "bfloat16" not in QUICK.describe(60)
    with pytest.raises(UserError, match="dtype"):
        replace(QUICK, dtype="bfloat")


def _soft(train: SyntheticSet, sure: float) -> torch.Tensor:
    """Probabilities over all six classes: `sure` for the label, the rest evenly."""
    soft = torch.full((len(train.labels), 6), (1 - sure) / 5)
    soft[torch.arange(len(train.labels)), train.labels] = sure
    return soft


def test_soft_labels_are_what_is_learnt_and_sure_ones_are_hard_ones() -> None:
    train = bars(60, 0)
    hard, sure = _fingerprint(train, 1), SyntheticSet(train.images, train.labels, _soft(train, 1.0))
    torch.testing.assert_close(
        torch.frombuffer(bytearray(_fingerprint(sure, 1)), dtype=torch.float32),
        torch.frombuffer(bytearray(hard), dtype=torch.float32),
        rtol=1e-3,
        atol=1e-4,
    )
    turned = _soft(SyntheticSet(train.images, torch.tensor(ORDER)[torch.arange(60) % 3 - 1]), 0.9)
    assert run(train=SyntheticSet(train.images, train.labels, turned)).accuracy < 0.2


def test_soft_labels_are_those_of_the_classes_seen() -> None:
    train = bars(6, 0)
    found = targets(SyntheticSet(train.images, train.labels, _soft(train, 0.5)), ORDER)
    first = torch.tensor([0.5, 0.1, 0.1]) / 0.7
    torch.testing.assert_close(found[0], first)  # an image of ORDER[0]
    assert torch.equal(targets(train, ORDER), torch.arange(6) % 3)
    for bad in (_soft(train, 0.5)[:5], torch.zeros(6, 6)):
        with pytest.raises(UserError, match="soft labels"):
            targets(SyntheticSet(train.images, train.labels, bad), ORDER)


def test_sets_joined_keep_soft_labels_only_if_all_have_them() -> None:
    train = bars(6, 0)
    soft = SyntheticSet(train.images, train.labels, _soft(train, 0.5))
    joined = SyntheticSet.join([soft, soft])
    assert joined.soft is not None
    assert joined.soft.shape == (12, 6)
    assert SyntheticSet.join([soft, train]).soft is None
    assert SyntheticSet.join([train, train]).soft is None


def test_shuffled_labels_teach_nothing() -> None:
    train = bars(60, 0)
    wrong = train.labels[torch.randperm(60, generator=torch_generator("shuffle"))]
    assert run(train=SyntheticSet(train.images, wrong)).accuracy < 0.75


def test_bytes_and_floats_are_the_same_images() -> None:
    test = bars(30, 2)
    as_bytes = (test.images.clamp(0, 1) * 255).round().to(torch.uint8)
    labels = test.labels
    floats = run(test_images=as_bytes.float() / 255, test_labels=labels)
    assert floats == run(test_images=as_bytes, test_labels=labels)


def test_same_key_same_bits_even_in_another_process_with_other_threads() -> None:
    noisy = bars(60, 0)
    noisy = SyntheticSet(
        noisy.images + 2 * torch.rand(60, 1, 16, 16, generator=torch_generator(1)), noisy.labels
    )
    here = _fingerprint(noisy, 2)
    torch.rand(17)  # the global generator plays no part
    assert _fingerprint(noisy, 1) == here
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(_fingerprint, noisy, 2).result(timeout=120) == here
    assert _fingerprint(noisy, 1, key=("other",)) != here


def _fingerprint(train: SyntheticSet, threads: int, key: tuple[object, ...] = ("k",)) -> bytes:
    """All bits of a trained net."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with mock.patch.object(downstream, "_score", wraps=downstream._score) as score:
            run(train=train, key=key)
        assert torch.get_num_threads() == threads  # put back
    finally:
        torch.set_num_threads(before)
    net = score.call_args.args[0]
    return torch.cat([p.detach().flatten() for p in net.parameters()]).numpy().tobytes()


@pytest.mark.parametrize("epochs", [3, 8])
def test_the_loop_is_the_published_one(epochs: int) -> None:
    """Against a plain loop: dense SGD, rate divided and momentum forgotten after E // 2 + 1."""
    rules = protocol("P")
    train = bars(300, 0)  # two batches a pass: 256 and 44
    x, y = rules.scaled(train.images, FACTS).double(), positions(train.labels, ORDER)
    with default_seed("init"):
        ours = ConvNet(4, 3, FACTS.shape).double()
    with default_seed("init"):
        plain = ConvNet(4, 3, FACTS.shape).double()
    downstream.fit_network(
        ours,
        x,
        y,
        plan=rules.schedule(300, epochs),
        rules=rules,
        strategy=(),
        generator=torch_generator("order"),
    )
    order, rate = torch_generator("order"), 0.01
    momentum: dict[str, torch.Tensor] = {}
    for epoch in range(epochs + 1):
        for chosen in torch.randperm(300, generator=order).split(256):
            named = dict(plain.named_parameters())
            loss = functional.cross_entropy(plain(x[chosen]), y[chosen])
            grads = torch.autograd.grad(loss, list(named.values()))
            with torch.no_grad():
                for (name, p), grad in zip(named.items(), grads, strict=True):
                    step = grad + 5e-4 * p
                    momentum[name] = 0.9 * momentum[name] + step if name in momentum else step
                    p.sub_(rate * momentum[name])
        if epoch == epochs // 2 + 1:
            rate, momentum = rate * 0.1, {}
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ours(x[:9]), plain(x[:9]), rtol=1e-6, atol=1e-8)


def test_released_model_is_tested_over_all_its_outputs() -> None:
    with default_seed("model"):
        net = ConvNet(4, FACTS.classes, FACTS.shape)
    test = bars(40, 3)
    result = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=FACTS)
    scaled = protocol("P").scaled(test.images, FACTS)
    right = net(scaled).argmax(dim=1) == test.labels
    assert result.accuracy == pytest.approx(float(right.float().mean()))
    assert (result.width, result.steps) == (4, 0)
    with torch.no_grad():
        net.classifier.bias[1] += 1e4  # a class that is not among those tested
    blind = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=FACTS)
    assert blind.accuracy == 0


def test_a_released_model_scores_the_same_under_every_protocol() -> None:
    """Its method trained it on standardised images; a protocol for sets must not rescale them."""
    with default_seed("model"):
        net = ConvNet(4, FACTS.classes, FACTS.shape)
    test = bars(40, 3)
    result = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=FACTS)
    standardised = (test.images - FACTS.mean[0]) / FACTS.std[0]
    right = net(standardised).argmax(dim=1) == test.labels
    assert result.accuracy == pytest.approx(float(right.float().mean()))
    assert result.protocol == "none"


@pytest.mark.parametrize(("cap", "looks"), [(0, 30), (60 * 26, 20)])
def test_the_best_epoch_is_kept_apart_and_never_chosen(cap: int, looks: int) -> None:
    setting = EvaluationConfig("L", epochs=30, max_images=cap, batch=20)
    result = run(setting)
    with mock.patch.object(downstream, "looks", return_value=frozenset()):
        blind = run(setting)  # never tested on the way
    assert blind.optimistic is None
    assert result.accuracy == blind.accuracy
    assert result.looks == looks
    assert result.optimistic is not None
    assert result.optimistic >= result.accuracy
    assert result.classifier == "keras_cnn"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 70))
def test_what_is_used_of_a_large_set_has_all_classes_alike(names: list[int], most: int) -> None:
    labels = torch.tensor(names)
    train = SyntheticSet(torch.arange(len(names)).float().view(-1, 1, 1, 1), labels)
    part = used(train, most, ("k",))
    assert len(part.labels) == min(most, len(names))
    picked = part.images.flatten().long()
    assert len(picked.unique()) == len(picked)
    assert torch.equal(part.labels, labels[picked])
    assert torch.equal(used(train, most, ("k",)).images, part.images)
    have, want = torch.bincount(labels, minlength=5), torch.bincount(part.labels, minlength=5)
    smallest_cut = min((int(w) for h, w in zip(have, want, strict=True) if w < h), default=99)
    assert all(w <= smallest_cut + 1 for w in want)


def test_a_classical_classifier_sees_pixels_clamped_and_only_so_many() -> None:
    train = bars(60, 0)
    wild = SyntheticSet(train.images + 5 * (train.images > 0.6), train.labels)
    setting = EvaluationConfig("G", suite_images=30)
    result = run(setting, train=wild, name="gaussian_nb")
    assert (result.images, result.released, result.steps) == (30, 60, 0)
    clean = SyntheticSet(wild.images.clamp(0, 1), train.labels)
    assert run(setting, train=clean, name="gaussian_nb") == result
    assert result.accuracy > 0.9


def test_positions_follow_the_order() -> None:
    assert positions(torch.tensor([3, 5, 5, 0]), ORDER).tolist() == [2, 0, 0, 1]


@pytest.mark.parametrize("name", ["lenet", "mlp"])
def test_other_nets(name: str) -> None:
    info = replace(FACTS, name="digits", shape=(1, 28, 28))
    g = torch_generator("other")
    train = SyntheticSet(torch.rand(12, 1, 28, 28, generator=g), torch.tensor([0, 3, 5] * 4))
    setting = EvaluationConfig(classifier=name, epochs=2)
    result = run(
        setting, train=train, test_images=train.images, test_labels=train.labels, info=info
    )
    assert result.classifier == name


def test_bad_material_is_refused_in_words() -> None:
    train = bars(12, 0)
    with pytest.raises(UserError, match=r"labels \[4\].*\[5, 0, 3\]"):
        run(train=SyntheticSet(train.images, torch.full((12,), 4)))
    with pytest.raises(UserError, match="empty"):
        run(train=SyntheticSet(train.images[:0], train.labels[:0]))
    broken = train.images.clone()
    broken[3, 0, 1, 1] = float("nan")
    with pytest.raises(UserError, match="not all finite"):
        run(train=SyntheticSet(broken, train.labels))


def test_everything_travels() -> None:
    result = run(replace(QUICK, epochs=2))
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(train_and_test)) is train_and_test

"""Training and test of a classifier: it learns, is reproducible, and records its schedule."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import pickle
from dataclasses import replace
from unittest import mock

import pytest
import torch
from pretend_device import pretended_gpu
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import train_classifier
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import protocol
from fedsynth.evaluation.train_classifier import EvaluationTask, score_model, train_and_test
from fedsynth.evaluation.types import EvalResult, checked_class_indices
from fedsynth.nn.classifiers.convnet import ConvNet

INFO = DatasetInfo("shapes", (1, 16, 16), 6, (0.2,), (0.4,))
CLASSES = (5, 0, 3)
QUICK = EvaluationConfig(width=8, epochs=12, nets=1)
FIRST = {"P": "convnet", "D": "convnet", "S": "poolnet", "L": "keras_cnn", "G": "cnn"}


def bars(n: int, seed: int) -> SyntheticSet:
    """Class c of CLASSES is a bright bar at its own height, with noise."""
    g = torch_generator("bars", seed)
    places = torch.arange(n) % len(CLASSES)
    x = 0.2 * torch.rand(n, 1, 16, 16, generator=g)
    for image, place in zip(x, places.tolist(), strict=True):
        image[0, 2 + 5 * place : 5 + 5 * place] += 0.7
    return SyntheticSet(x, torch.tensor(CLASSES)[places])


def run(config: EvaluationConfig = QUICK, **changed: object) -> EvalResult:
    test = bars(45, 1)
    task = EvaluationTask(
        config.classifiers(INFO)[0],
        bars(60, 0),
        test.images,
        test.labels,
        CLASSES,
        INFO,
        config,
        (0, "evaluation", 1),
    )
    return train_and_test(replace(task, **changed))  # type: ignore[arg-type]


def padded(train: SyntheticSet, test: SyntheticSet) -> dict[str, object]:
    """Sets of 28 pixels per side, which every network takes, as fields of a task."""
    large, other = (functional.pad(some.images, (6, 6, 6, 6)) for some in (train, test))
    return {
        "train": SyntheticSet(large, train.labels),
        "test_images": other,
        "test_labels": test.labels,
        "info": replace(INFO, shape=(1, 28, 28)),
    }


@pytest.mark.parametrize("name", ["P", "D", "S", "L", "G"])
def test_a_classifier_trains_and_is_tested_on_a_gpu_without_waiting_for_it(name: str) -> None:
    """One copy comes back per test: that of the predictions."""
    config = EvaluationConfig(
        protocol=name, width=8, nets=1, max_images=120, batch=20, classifier=(FIRST[name],)
    )
    data = padded(bars(60, 0), bars(15, 1))
    alone = run(config, **data)
    with pretended_gpu() as gpu:
        result = run(config, device="cuda", **data)
    assert gpu.operations > 100
    tests = max(1, result.tests_during_training)
    assert gpu.syncs == {"evaluation.train_classifier:_test (copy to the CPU)": tests}
    assert abs(result.accuracy - alone.accuracy) <= 0.2


@pytest.mark.parametrize("name", ["lenet", "alexnet", "vgg11", "resnet18", "mlp", "poolnet"])
def test_every_network_keeps_to_its_device(name: str) -> None:
    config = EvaluationConfig(width=4, nets=1, max_images=4, batch=4, classifier=(name,))
    with pretended_gpu() as gpu:
        run(config, device="cuda", **padded(bars(4, 2), bars(3, 3)))
    assert gpu.operations > 20
    assert gpu.places() == {"evaluation.train_classifier:_test"}


@pytest.mark.parametrize(("name", "epochs"), [("P", 60), ("D", 60), ("S", 150)])
def test_every_protocol_learns(name: str, epochs: int) -> None:
    result = run(replace(QUICK, protocol=name, epochs=epochs))
    assert result.accuracy > 0.9
    assert result.per_class.keys() == set(CLASSES)
    assert all(tested == 15 for _, tested in result.per_class.values())
    assert (result.protocol, result.epochs, result.steps) == (name, epochs + 1, epochs + 1)
    assert (result.width, result.images) == (8, 60)
    assert result.seconds > 0
    assert result.batch == protocol(name).batch
    assert run(replace(QUICK, batch=16)).steps == 13 * 4


def test_bfloat16_learns_and_is_named() -> None:
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
    turned = _soft(SyntheticSet(train.images, torch.tensor(CLASSES)[torch.arange(60) % 3 - 1]), 0.9)
    assert run(train=SyntheticSet(train.images, train.labels, turned)).accuracy < 0.2


def test_nothing_is_learned_from_shuffled_labels() -> None:
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
    torch.rand(17)  # from the global generator, which is not used
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
        with mock.patch.object(train_classifier, "_test", wraps=train_classifier._test) as test:
            run(train=train, key=key)
        assert torch.get_num_threads() == threads  # put back
    finally:
        torch.set_num_threads(before)
    net = test.call_args.args[0]
    return torch.cat([p.detach().flatten() for p in net.parameters()]).numpy().tobytes()


@pytest.mark.parametrize("epochs", [3, 8])
def test_the_loop_is_the_published_one(epochs: int) -> None:
    """Against a plain loop: learning rate divided and momentum reset after E // 2 + 1."""
    rules = protocol("P")
    train = bars(300, 0)  # two batches per epoch: 256 and 44
    x, y = (
        rules.normalize(train.images, INFO).double(),
        checked_class_indices(train.labels, CLASSES),
    )
    with default_seed("init"):
        ours = ConvNet(4, 3, INFO.shape).double()
    with default_seed("init"):
        plain = ConvNet(4, 3, INFO.shape).double()
    train_classifier.fit_network(
        ours,
        x,
        y,
        plan=rules.schedule(300, epochs),
        rules=rules,
        augmentations=(),
        generator=torch_generator("order"),
    )
    order, learning_rate = torch_generator("order"), 0.01
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
                    p.sub_(learning_rate * momentum[name])
        if epoch == epochs // 2 + 1:
            learning_rate, momentum = learning_rate * 0.1, {}
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ours(x[:9]), plain(x[:9]), rtol=1e-6, atol=1e-8)


def test_released_model_is_tested_over_all_its_outputs() -> None:
    with default_seed("model"):
        net = ConvNet(4, INFO.classes, INFO.shape)
    test = bars(40, 3)
    result = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=INFO)
    scaled = protocol("P").normalize(test.images, INFO)
    right = net(scaled).argmax(dim=1) == test.labels
    assert result.accuracy == pytest.approx(float(right.float().mean()))
    assert (result.width, result.steps) == (4, 0)
    with torch.no_grad():
        net.classifier.bias[1] += 1e4  # a class that is not among those tested
    blind = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=INFO)
    assert blind.accuracy == 0


def test_a_released_model_scores_the_same_under_every_protocol() -> None:
    """Its method trained it on standardised images; a protocol for sets must not rescale them."""
    with default_seed("model"):
        net = ConvNet(4, INFO.classes, INFO.shape)
    test = bars(40, 3)
    result = score_model(ReleasedModel(net.state_dict(), 4), test.images, test.labels, info=INFO)
    standardised = (test.images - INFO.mean[0]) / INFO.std[0]
    right = net(standardised).argmax(dim=1) == test.labels
    assert result.accuracy == pytest.approx(float(right.float().mean()))
    assert result.protocol == "none"


@pytest.mark.parametrize(("cap", "tests"), [(0, 30), (60 * 26, 20)])
def test_the_best_epoch_is_separate_and_never_selected(cap: int, tests: int) -> None:
    config = EvaluationConfig("L", epochs=30, max_images=cap, batch=20)
    result = run(config)
    with mock.patch.object(train_classifier, "steps_with_test", return_value=frozenset()):
        blind = run(config)  # not tested during training
    assert blind.best_test_accuracy is None
    assert result.accuracy == blind.accuracy
    assert result.tests_during_training == tests
    assert result.best_test_accuracy is not None
    assert result.best_test_accuracy >= result.accuracy
    assert result.classifier == "keras_cnn"


def test_a_classical_classifier_gets_clamped_pixels_of_a_subset() -> None:
    train = bars(60, 0)
    wild = SyntheticSet(train.images + 5 * (train.images > 0.6), train.labels)
    config = EvaluationConfig("G", suite_images=30)
    result = run(config, train=wild, classifier="gaussian_nb")
    assert (result.images, result.released, result.steps) == (30, 60, 0)
    clean = SyntheticSet(wild.images.clamp(0, 1), train.labels)
    assert run(config, train=clean, classifier="gaussian_nb") == result
    assert result.accuracy > 0.9


@pytest.mark.parametrize("name", ["lenet", "mlp"])
def test_other_networks(name: str) -> None:
    info = replace(INFO, name="digits", shape=(1, 28, 28))
    g = torch_generator("other")
    train = SyntheticSet(torch.rand(12, 1, 28, 28, generator=g), torch.tensor([0, 3, 5] * 4))
    config = EvaluationConfig(classifier=name, epochs=2)
    result = run(config, train=train, test_images=train.images, test_labels=train.labels, info=info)
    assert result.classifier == name


def test_unusable_sets_are_refused() -> None:
    train = bars(12, 0)
    with pytest.raises(UserError, match=r"labels \[4\].*\[5, 0, 3\]"):
        run(train=SyntheticSet(train.images, torch.full((12,), 4)))
    with pytest.raises(UserError, match="empty"):
        run(train=SyntheticSet(train.images[:0], train.labels[:0]))
    broken = train.images.clone()
    broken[3, 0, 1, 1] = float("nan")
    with pytest.raises(UserError, match="not all finite"):
        run(train=SyntheticSet(broken, train.labels))


def test_results_and_function_are_picklable() -> None:
    result = run(replace(QUICK, epochs=2))
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(train_and_test)) is train_and_test

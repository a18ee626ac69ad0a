"""The evaluation keys: what fits a protocol, presets, layers and the description of a run."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.config import PRESETS, TRAINING_KEYS, EvaluationConfig, merge_layers
from fedsynth.evaluation.protocols import PROTOCOLS

MNIST = DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,))


def test_sets_larger_than_the_protocol_uses_are_cut() -> None:
    assert EvaluationConfig("L").schedule(300_000) == EvaluationConfig("L").schedule(100_000)
    assert EvaluationConfig("G", suite_images=500).rules.max_train_images == 500
    assert EvaluationConfig("P", suite_images=500).rules.max_train_images == 0


@pytest.mark.parametrize(
    ("name", "classifier", "message"),
    [
        ("P", "gbm", r"classifier=gbm is not of protocol P\. Allowed: convnet"),
        ("G", "convnet", r"classifier=convnet is not of protocol G"),
        ("P", "lenet", r"'lenet' needs square images"),
        ("L", "keras_cnn", r"needs at least 8 pixels per side"),
    ],
)
def test_a_classifier_that_does_not_fit_is_refused(
    name: str, classifier: str, message: str
) -> None:
    tiny = dataclasses.replace(MNIST, shape=(1, 6, 6))
    with pytest.raises(UserError, match=message):
        EvaluationConfig(name, classifier=(classifier,)).check(tiny)


def test_every_protocol_fits_digits_and_a_single_name_is_a_tuple() -> None:
    for name in PROTOCOLS:
        EvaluationConfig(name).check(MNIST)
    assert EvaluationConfig(classifier="mlp").classifier == ("mlp",)  # type: ignore[arg-type]
    assert EvaluationConfig(classifier=("mlp", "lenet", "mlp")).classifiers(MNIST) == (
        "mlp",
        "lenet",
    )


@pytest.mark.parametrize("name", ["G", "L"])
@pytest.mark.parametrize("preset", ["smoke", "laptop"])
def test_presets_shorten_the_schedule(name: str, preset: str) -> None:
    cheap = EvaluationConfig(name, **PRESETS[name][preset])
    assert cheap.schedule(60_000).steps < EvaluationConfig(name).schedule(60_000).steps
    assert "paper" not in PRESETS[name]
    assert set(PRESETS[name][preset]) <= set(TRAINING_KEYS)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("protocol", "Q", "unknown protocol 'Q'"),
        ("classifier", "convnets", "Did you mean 'convnet'"),
        ("classifier", ("convnet", "linear_svm"), "Did you mean 'linear_svc'"),
        ("width", 0, "width=0"),
        ("suite_images", -1, "suite_images=-1"),
        ("max_images", -1, "max_images=-1"),
        ("epochs", 2.5, "epochs=2.5"),
        ("nets", True, "nets=True"),
    ],
)
def test_invalid_settings_are_named_in_the_error(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        EvaluationConfig(**{field: value})  # type: ignore[arg-type]


def test_smaller_batches_make_more_steps_in_as_many_epochs() -> None:
    usual = EvaluationConfig("P", max_images=20_000).schedule(100)
    small = EvaluationConfig("P", max_images=20_000, batch=25).schedule(100)
    assert (usual.epochs, small.epochs) == (200, 200)
    assert (usual.steps, small.steps) == (200, 800)
    assert EvaluationConfig("P", batch=25).rules.batch == 25
    assert "at most 25" in EvaluationConfig("P", batch=25).describe(100)


def test_the_description_holds_the_schedule() -> None:
    text = EvaluationConfig("D", width=32, nets=5, epochs=10).describe(300)
    for part in (
        "protocol D",
        "convnet-32 x 5",
        "11 epochs",
        "22 steps of at most 256",
        "300 images",
    ):
        assert part in text


def test_layers_override_presets_and_separate_protocols_drop_earlier_training_keys() -> None:
    first: dict[str, object] = {"nets": 5, "quality": True}
    assert merge_layers([first, {"protocol": "P"}, {"nets": 2}], "smoke")["nets"] == 2
    assert merge_layers([first, {"protocol": "P"}], "smoke")["nets"] == 5
    merged = merge_layers([first, {"protocol": "L"}], "smoke")
    assert "nets" not in merged
    assert merged["quality"] is True
    assert merged["batch"] == PRESETS["L"]["smoke"]["batch"]

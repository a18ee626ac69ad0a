"""The published facts of a data set hold for its data, and are known without reading it."""

import doctest
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column, DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import shapes
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.tables import table_info

# Their published constants are not the moments of all pixels: see their files.
SCALED_OTHERWISE = {"cifar10", "celeba_gender", "celeba_hair", "places365"}
SCALED_OTHERWISE |= {"bank_marketing", "german_credit", "letter", "optdigits"}  # by their ranges
SCALED_OTHERWISE |= {"cifar10_features"}  # to a length


def load_or_explain(name, split):
    """The data, or None where there is no network; then the error must have told so."""
    try:
        return datasets.load(name, split)
    except UserError as error:
        if "cannot be had. Tried:" not in str(error):
            raise
        return None


UNPUBLISHED = ("emnist_users", "femnist_leaf", "femnist_tff", "femnist_flower")  # class counts
PUBLISHED = [name for name in datasets.names() if datasets.find(name).train]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("split", datasets.SPLITS)
def test_published_facts_are_true(name, split):
    if name == "cifar10_features" and not (sources.data_directory() / name / "computed").is_dir():
        pytest.skip("`fedsynth fetch cifar10_features` computes for minutes")
    loaded = load_or_explain(name, split)
    if loaded is None:
        return
    (images, labels), known = loaded, datasets.find(name)
    stored = torch.float32 if known.info.kind == DataKind.TABLE else torch.uint8
    assert (images.dtype, labels.dtype) == (stored, torch.int64)
    assert images.shape == (len(labels), *known.info.shape)
    counted = [int((labels == c).sum()) for c in range(known.info.classes)]
    assert counted == list(known.class_counts(split))
    assert sum(counted) == len(labels)
    if split == "train" and name not in SCALED_OTHERWISE:
        pixels = images.double() / (1 if known.info.kind == DataKind.TABLE else 255)
        for c in range(known.info.shape[0]):
            assert abs(pixels[:, c].mean() - known.info.mean[c]) < 1e-3
            assert abs(pixels[:, c].std() - known.info.std[c]) < 1e-3


def test_facts_are_told_where_no_data_is(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("data was read")

    monkeypatch.setattr(files, "read_known", refuse)
    monkeypatch.setattr(sources, "fetch", refuse)
    monkeypatch.setattr(shapes, "figure", refuse)
    for name in datasets.names():
        known = datasets.find(name)
        assert known.name == name
        assert len(known.train) == len(known.test)
        from_files = name in UNPUBLISHED or known.counted is not None
        assert len(known.train) in (known.info.classes, 0 if from_files else None)
        assert len(known.info.mean) == len(known.info.std) == known.info.shape[0]
        assert known.about
        assert "\n" not in known.about


@pytest.mark.parametrize("call", [datasets.find, lambda name: datasets.load(name, "train")])
def test_unknown_names_are_told_the_nearest(call):
    with pytest.raises(UserError, match=r"unknown data set 'fasion_mnist'.*'fashion_mnist'"):
        call("fasion_mnist")


def test_unknown_splits_are_told_the_nearest():
    for call in (datasets.find("shapes").class_counts, lambda s: datasets.load("shapes", s)):
        with pytest.raises(UserError, match=r"unknown split 'tests'. Did you mean 'test'"):
            call("tests")


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(datasets, "_registry", dict(datasets._registry))


def register(images, labels, train=(2, 2)):
    info = DatasetInfo("new", (1, 2, 2), 2, (0.5,), (0.5,))
    datasets.dataset(info, train=train, test=(1, 1), about="new")(lambda *_: (images, labels))


def test_one_function_adds_a_data_set(registry):
    register(np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 0, 1]))
    images, labels = datasets.load("new", "train")
    assert images.shape == (4, 1, 2, 2)
    assert labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="two data sets named 'new'"):
        register(None, None)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 1, 1])),
        (np.zeros((5, 1, 2, 2), np.uint8), np.array([0, 1, 1, 0, 2])),
        (np.zeros((4, 1, 2, 3), np.uint8), np.array([0, 1, 0, 1])),
        (np.zeros((3, 1, 2, 2), np.uint8), np.array([0, 1, 0, 1])),
    ],
)
def test_data_that_differ_from_what_is_published_are_refused(registry, images, labels):
    register(images, labels)
    with pytest.raises(UserError, match="not as published"):
        datasets.load("new", "train")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((4, 1, 2, 2)), [0, 1, 0, 1], "records must be uint8, and are float64"),
        (None, [0.0, 1.0, 0.0, 1.0], r"labels must be whole numbers \[n\], and are float64 \[4\]"),
        (None, [[0], [1], [0], [1]], r"labels must be .* int64 \[4, 1\]"),
        (None, [0, 1, -1, 1], r"label of record 2 is not one of 0 to 1 \(1 are so\)"),
        (None, [0, 1, 7, 9], r"label of record 2 is not one of 0 to 1 \(2 are so\)"),
    ],
)
def test_what_a_reader_may_not_hand_over_is_named_by_its_place(registry, images, labels, message):
    register(np.zeros((4, 1, 2, 2), np.uint8) if images is None else images, np.array(labels))
    with pytest.raises(UserError, match=f"train split of new is not as published: .*{message}"):
        datasets.load("new", "train")


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.5])
def test_a_table_holds_numbers_from_0_to_1_only(registry, value):
    columns = (Column("age", 0, 90), Column("height", 0, 3))
    rows = np.full((4, 2, 1, 1), 0.5, np.float32)
    rows[3, 1] = value
    read = datasets.dataset(table_info("new", columns, 2), (2, 2), (1, 1), about="new")
    read(lambda *_: (rows, np.array([0, 1, 0, 1])))
    with pytest.raises(UserError, match=r"column 'height' of record 3 is not from 0 to 1"):
        datasets.load("new", "train")


def test_made_data_say_that_they_are_made():
    for known in map(datasets.find, datasets.names()):
        assert known.made == ("made-up" in known.about)
    assert datasets.find("shapes").made


def test_the_examples_in_the_docstrings():
    result = doctest.testmod(datasets)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["mnist", "celeba_hair", "made_table", "mnist_virtual"])
def test_a_data_set_is_found_without_importing_the_others(name):
    code = f"""
import sys
from fedsynth.data import registry
registry.find({name!r})
package = registry.PACKAGE + "."
print(*sorted(m.removeprefix(package) for m in sys.modules if m.startswith(package)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = {"celeba_hair": ["celeba"], "mnist_virtual": ["mnist", "mnist_virtual"]}
    assert out.stdout.split() == expected.get(name, [name])

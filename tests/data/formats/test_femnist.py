"""Federated EMNIST from small files in each published format."""

import json
import sys

import numpy as np
import pytest
from femnist_files import PEOPLE, drawing, install, write_leaf, write_tff
from PIL import Image

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import femnist as federated
from fedsynth.data.formats import femnist

MERGED = {0: 0, 3: 3, 9: 9, 10: 10, 11: 11, 35: 35, 36: 10, 60: 34, 61: 35}  # a is A, z is Z


@pytest.fixture(autouse=True)
def clear_cache():
    """Forget the records of a test."""
    yield
    federated.records.cache_clear()


@pytest.fixture(params=["femnist_leaf", "femnist_tff"])
def written(request, tmp_path, monkeypatch):
    """A data directory with the people above, and the name of the set that reads it."""
    if request.param == "femnist_leaf":
        write_leaf(tmp_path)
    else:
        write_tff(tmp_path, monkeypatch)
    return request.param, tmp_path


def test_users_come_with_their_records_in_the_colours_of_mnist(written):
    name, folder = written
    known = datasets.find(name)
    people = known.owners.read(0, folder)
    assert people.users == 2, "a user without records is none"
    found = {}
    for user in range(people.users):
        images, labels = people.of(user)
        found[len(labels)] = images, labels.tolist()
    for writer, characters in PEOPLE["train"].items():
        if not characters:
            continue
        images, labels = found[len(characters)]
        assert labels == [MERGED[c] for c in characters]
        for place, image in enumerate(images):
            expected = np.rint(255 * (1 - drawing(writer, "train", place)))
            assert (image[0] == expected).all()
    counts = known.owners.counts(0, folder)
    assert counts.shape == (2, 36)
    assert counts.sum() == 7
    images, labels = datasets.load(name, "test", folder)
    assert images.shape == (2, 1, 28, 28)
    assert labels.tolist() == [9, 34]


def test_a_source_is_converted_once_and_again_when_it_changes(written, monkeypatch):
    name, folder = written
    first = federated.records(name, "train", folder)
    assert isinstance(first.images, np.memmap)
    reader = federated.READERS[name]
    monkeypatch.setitem(federated.READERS, name, lambda *_: pytest.fail("read again"))
    federated.records.cache_clear()
    again = federated.records(name, "train", folder)
    assert (again.images == first.images).all()
    changed = femnist.source_files(name, folder)[0]
    changed.write_text(changed.read_text() + " ")
    monkeypatch.setitem(federated.READERS, name, reader)
    federated.records.cache_clear()
    assert (federated.records(name, "train", folder).images == first.images).all()
    assert not list(folder.rglob(".converting-*"))


def test_a_damaged_file_is_named_and_leaves_nothing(written):
    name, folder = written
    damaged = femnist.source_files(name, folder)[0]
    damaged.write_text(damaged.read_text()[:-20])
    with pytest.raises(UserError, match=damaged.name):
        federated.records(name, "train", folder)
    assert not list(folder.rglob("*.npy"))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.5] * 784], [0], r"pixels outside \[0, 1\]"),
        ([[1.0] * 784], [62], "labels from 62 to 62, not 0 to 61"),
        ([[1.0] * 784], [1, 2], "images of shape .* for 2 labels"),
        ([[1.0] * 783], [1], "cannot reshape"),
    ],
)
def test_contents_that_cannot_be_are_told(x, y, message, tmp_path):
    write_leaf(tmp_path)
    path = tmp_path / "femnist/data/train/all_data_9.json"
    path.write_text(json.dumps({"user_data": {"me": {"x": x, "y": y}}}))
    with pytest.raises(UserError, match=f"all_data_9.json is not a LEAF file .*{message}"):
        federated.records("femnist_leaf", "train", tmp_path)


def test_flower_datasets_every_tenth_record_is_for_testing(tmp_path, monkeypatch):
    rows = [
        {
            "image": Image.fromarray(np.full((28, 28), 255 - i, np.uint8)),
            "writer_id": f"f{i % 2}",
            "hsf_id": 0,
            "character": i,
        }
        for i in range(40)
    ]

    class FederatedDataset:
        def __init__(self, dataset, partitioners):
            assert dataset == "flwrlabs/femnist"
            assert partitioners

        def load_split(self, split):
            assert split == "train"
            return rows

    install(monkeypatch, "flwr_datasets", FederatedDataset=FederatedDataset)
    train = federated.records("femnist_flower", "train", tmp_path)
    test = federated.records("femnist_flower", "test", tmp_path)
    tested = [18, 38, 19, 39]  # the tenth and twentieth of either writer
    assert test.images[:, 0, 0, 0].tolist() == tested
    assert test.labels.tolist() == [18, 12, 19, 13]
    left = [*range(0, 40, 2), *range(1, 40, 2)]
    assert train.images[:, 0, 0, 0].tolist() == [i for i in left if i not in tested]


def test_flower_datasets_without_a_network_are_one_message(tmp_path, monkeypatch):
    def fail(**_):
        raise ConnectionError("no route to the hub")

    install(monkeypatch, "flwr_datasets", FederatedDataset=fail)
    with pytest.raises(UserError, match=r"cannot be had from Flower.*no route to the hub"):
        federated.records("femnist_flower", "train", tmp_path)


def test_hdf5_without_h5py_says_what_to_install(tmp_path, monkeypatch):
    write_tff(tmp_path, monkeypatch)
    monkeypatch.delitem(sys.modules, "h5py")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"h5py is not installed: pip install h5py"):
        federated.records("femnist_tff", "train", tmp_path)

"""MNIST by its real writers, on small files."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from cached import cleared

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import mnist_writers
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def shapes_as_mnist(monkeypatch):
    """The made-up shapes stand where MNIST stands."""
    monkeypatch.setattr(mnist_writers, "PUBLISHED", datasets.find("shapes"))
    with cleared(mnist_writers, "writers", "_by_writer", "_unavailable"):
        yield


def labels_file(writers):
    """Extended labels as QMNIST has them: eight numbers a record, the third is the writer."""
    rows = np.zeros((len(writers), 8), ">i4")
    rows[:, 2] = writers
    return struct.pack(">3I", 0x0C02, len(writers), 8) + rows.tobytes()


@pytest.fixture
def three_writers(shapes_as_mnist, monkeypatch, tmp_path):
    """A data directory with the labels of three writers, out of order."""
    who = np.random.default_rng(0).choice([2154, 7, 300], 2000)
    content = labels_file(who)
    known = files.VerifiedFile("qmnist-train-labels-idx2-int", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(mnist_writers, "LABELS", known)
    folder = tmp_path / "QMNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / f"{known.name}.gz").write_bytes(gzip.compress(content))
    return who, tmp_path


def test_every_writer_holds_what_they_wrote(three_writers):
    who, folder = three_writers
    known = datasets.find("mnist_writers")
    images, labels = datasets.find("shapes").reader("train", None)
    people = known.owners.read(0, folder)
    assert people.users == 3
    for user, writer in enumerate((7, 300, 2154)):
        mine, classes = people.of(user)
        assert (mine == images[who == writer]).all()
        assert (classes == labels[who == writer]).all()
    assert known.owners.counts(0, folder).sum(0).tolist() == np.bincount(labels).tolist()


def test_other_labels_than_the_published_ones_are_refused(three_writers):
    _, folder = three_writers
    path = folder / "QMNIST" / "raw" / f"{mnist_writers.LABELS.name}.gz"
    path.write_bytes(gzip.compress(labels_file(np.zeros(2000, int))))
    with pytest.raises(UserError, match=r"is not the file it should be.*Delete it"):
        mnist_writers.writers(folder)


def test_labels_are_fetched_once_and_verified(three_writers, monkeypatch, tmp_path):
    _, folder = three_writers
    content = (folder / "QMNIST" / "raw" / f"{mnist_writers.LABELS.name}.gz").read_bytes()
    fetched = []

    def fetch(name, target):
        fetched.append(name)
        (target / f"{name}.gz").write_bytes(content)
        return target / f"{name}.gz"

    monkeypatch.setattr(clients, "qmnist_labels", fetch)
    for _ in range(2):
        mnist_writers.writers.cache_clear()
        assert len(np.unique(mnist_writers.writers(tmp_path / "new"))) == 3
    assert fetched == [mnist_writers.LABELS.name]
    content = content[:-30]
    assert "not a complete gzip file" in mnist_writers.unavailable(tmp_path / "other")
    assert not list((tmp_path / "other").rglob("*int*"))


def test_the_address_is_torchvisions(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(clients, "_download", lambda url, target, _: asked.append((url, target)))
    path = clients.qmnist_labels("qmnist-train-labels-idx2-int", tmp_path)
    assert path == tmp_path / "qmnist-train-labels-idx2-int.gz"
    assert asked[0][0].endswith("/qmnist-train-labels-idx2-int.gz")


def test_the_real_labels_name_539_writers_of_mnist():
    if (SHARED / "qmnist-train-labels-idx2-int.gz").is_file():
        path = SHARED / "qmnist-train-labels-idx2-int.gz"
        raw = np.frombuffer(files.read_known(path, mnist_writers.LABELS), ">i4", offset=12)
        labels = raw.reshape(-1, mnist_writers.FIELDS)
        assert len(np.unique(labels[:, mnist_writers.WRITER])) == 539
        counts = np.bincount(labels[:, 0], minlength=10)
        assert tuple(counts) == datasets.find("mnist").class_counts("train")

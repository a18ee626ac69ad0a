"""MNIST by its writers, real and virtual, on small made files."""

import dataclasses
import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import mnist_writers
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def shapes_as_mnist(monkeypatch):
    """The made-up shapes stand where MNIST stands."""

    def forget():
        for cached in ("writers", "_by_writer", "_dealt", "_virtual", "_virtual_test", "_lacking"):
            getattr(mnist_writers, cached).cache_clear()

    monkeypatch.setattr(mnist_writers, "PUBLISHED", datasets.find("shapes"))
    forget()
    yield
    forget()


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
    assert "not a whole gzip file" in mnist_writers.lacking(tmp_path / "other")
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


# Virtual writers


@pytest.mark.usefixtures("shapes_as_mnist")
def test_virtual_writers_share_out_all_records_and_nobody_is_empty():
    known = datasets.find("mnist_virtual")
    for parties in (1, 7, 1500):
        counts = known.owners.counts(parties, None)
        assert counts.shape == (parties, 10)
        assert counts.sum(1).min() >= 1
        assert tuple(counts.sum(0)) == datasets.find("shapes").train
        people = known.owners.read(parties, None)
        assert (people.counts(10) == counts).all()
    assert sorted(people.order.tolist()) == list(range(2000)), "nobody's record is another's"


@pytest.mark.usefixtures("shapes_as_mnist")
def test_a_virtual_writer_has_one_hand_and_others_have_others():
    images, labels = datasets.find("shapes").reader("train", None)
    picture = np.repeat(images[:1], 3, 0)
    drawn = mnist_writers.handwriting(5, picture)
    assert drawn.dtype == np.uint8
    assert (drawn == drawn[:1]).all()
    assert (mnist_writers.handwriting(5, images[:2])[0] == drawn[0]).all()
    others = np.stack([mnist_writers.handwriting(user, images[:1])[0] for user in range(20)])
    distances = np.abs(others[:, None].astype(int) - others[None]).mean((2, 3, 4))
    assert (distances + 255 * np.eye(20)).min() > 1
    people = datasets.find("mnist_virtual").owners.read(3, None)
    mine, classes = people.of(2)
    which = people.order[people.offsets[2] : people.offsets[3]]
    assert (mine == mnist_writers.handwriting(2, images[which])).all()
    assert (classes == labels[which]).all()


@pytest.mark.usefixtures("shapes_as_mnist")
def test_virtual_writers_draw_the_test_images_too():
    plain, _ = datasets.find("shapes").reader("test", None)
    drawn, labels = datasets.find("mnist_virtual").reader("test", None)
    assert (labels == datasets.find("shapes").reader("test", None)[1]).all()
    for place in (0, 17, 399):
        assert (
            drawn[place] == mnist_writers.handwriting(place % 500, plain[place : place + 1])
        ).all()
    assert "made-up" in datasets.find("mnist_virtual").about
    assert dataclasses.replace(datasets.find("mnist_virtual")).made

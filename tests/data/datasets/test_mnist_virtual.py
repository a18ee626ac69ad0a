"""MNIST by virtual writers, with `shapes` in place of MNIST."""

import dataclasses

import numpy as np
import pytest
from cached import cleared

from fedsynth.data import registry as datasets
from fedsynth.data.datasets import mnist_virtual


@pytest.fixture
def shapes_as_mnist(monkeypatch):
    """`shapes` in place of MNIST."""
    monkeypatch.setattr(mnist_virtual, "PUBLISHED", datasets.find("shapes"))
    with cleared(mnist_virtual, "_dealt", "_virtual", "_virtual_test"):
        yield


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
    drawn = mnist_virtual.handwriting(5, picture)
    assert drawn.dtype == np.uint8
    assert (drawn == drawn[:1]).all()
    assert (mnist_virtual.handwriting(5, images[:2])[0] == drawn[0]).all()
    others = np.stack([mnist_virtual.handwriting(user, images[:1])[0] for user in range(20)])
    distances = np.abs(others[:, None].astype(int) - others[None]).mean((2, 3, 4))
    assert (distances + 255 * np.eye(20)).min() > 1
    people = datasets.find("mnist_virtual").owners.read(3, None)
    mine, classes = people.of(2)
    which = people.order[people.offsets[2] : people.offsets[3]]
    assert (mine == mnist_virtual.handwriting(2, images[which])).all()
    assert (classes == labels[which]).all()


@pytest.mark.usefixtures("shapes_as_mnist")
def test_virtual_writers_draw_the_test_images_too():
    plain, _ = datasets.find("shapes").reader("test", None)
    drawn, labels = datasets.find("mnist_virtual").reader("test", None)
    assert (labels == datasets.find("shapes").reader("test", None)[1]).all()
    for place in (0, 17, 399):
        assert (
            drawn[place] == mnist_virtual.handwriting(place % 500, plain[place : place + 1])
        ).all()
    assert "made-up" in datasets.find("mnist_virtual").about
    assert dataclasses.replace(datasets.find("mnist_virtual")).made

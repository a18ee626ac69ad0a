"""Converted records of users: in the order of the reader, kept while the source is the same."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data.cache.user_records import records
from fedsynth.data.formats.femnist import SIDE

USERS = {"train": (3, 0, 2), "test": (1, 1)}  # records per user


class Source:
    """A source file, and a reader of it that counts its calls."""

    def __init__(self, folder) -> None:
        self.folder, self.reads = folder, 0
        self.file = folder / "source.json"
        self.file.write_text("{}")

    def read(self, _data_dir, split):
        """Images hold the number of their user; labels count."""
        self.reads += 1
        for user, n in enumerate(USERS[split]):
            images = np.full((n, 1, SIDE, SIDE), 10 * user + n, np.uint8)
            yield f"user {user}", images, np.arange(n, dtype=np.int64)

    def records(self, split, reader=None):
        """The records, by way of the cache."""
        return records("some_users", split, self.folder, reader or self.read, [self.file])


@pytest.fixture
def source(tmp_path) -> Source:
    """A source in an empty data directory."""
    return Source(tmp_path)


def test_users_are_those_of_the_reader_without_those_that_hold_nothing(source):
    train = source.records("train")
    assert train.users == 2
    for user, (value, n) in enumerate([(3, 3), (22, 2)]):
        images, labels = train.of(user)
        assert images.shape == (n, 1, SIDE, SIDE)
        assert (images == value).all()
        assert labels.tolist() == list(range(n))
    assert source.records("test").users == 2


def test_the_source_is_read_once_and_again_when_it_changes(source):
    for _ in range(2):
        source.records("train")
        source.records("test")
    assert source.reads == 2  # once per split
    os.utime(source.file, ns=(1, 1))
    source.records("train")
    assert source.reads == 4


def test_a_change_of_the_mapped_images_does_not_reach_the_disk(source):
    images, _ = source.records("train").of(0)
    images[...] = 99
    assert (source.records("train").of(0)[0] == 3).all()


def test_a_split_without_records_is_refused_and_nothing_is_kept(source):
    def empty(data_dir, split):
        return source.read(data_dir, split) if split == "train" else iter(())

    with pytest.raises(UserError, match="the test split of some_users holds no records"):
        source.records("train", empty)
    assert source.records("train").users == 2, "the next reader starts from nothing"

"""CIFAR-10's reader on small batches pickled as the published ones are."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import tarfile

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import cifar10
from fedsynth.data.fetch import known_files as files

NAMES = [known.name for known in files.CIFAR10.files]


def content(number: int, records: int = 4) -> tuple[bytes, np.ndarray, list[int]]:
    """A batch as published: protocol 2, texts of Python 2, rows of 3,072 bytes, channel first."""
    pixels = np.random.default_rng(number).integers(0, 256, (records, 3072), np.uint8)
    labels = [(number + k) % 10 for k in range(records)]
    batch = {b"batch_label": b"x", b"labels": labels, b"data": pixels, b"filenames": [b"a"] * 4}
    return pickle.dumps(batch, protocol=2), pixels, labels


@pytest.fixture
def batches(monkeypatch):
    """Six batches of four images, and their hashes as if they were the published ones."""
    made = {name: content(number) for number, name in enumerate(NAMES)}
    known = tuple(
        files.VerifiedFile(name, md5=hashlib.md5(raw).hexdigest())
        for name, (raw, *_) in made.items()
    )
    small = files.DatasetFiles(
        "cifar10", known, archive="cifar-10-python.tar.gz", folders=files.CIFAR10.folders
    )
    monkeypatch.setattr(files, "CIFAR10", small)
    monkeypatch.setitem(files.FILE_SETS, "cifar10", small)
    counts = {split: [0] * 10 for split in datasets.SPLITS}
    for name, (_, _, labels) in made.items():
        for label in labels:
            counts["test" if name.startswith("test") else "train"][label] += 1
    old = datasets._registry["cifar10"]
    entry = datasets.DataSet(
        old.info, tuple(counts["train"]), tuple(counts["test"]), old.about, False, old.reader
    )
    monkeypatch.setitem(datasets._registry, "cifar10", entry)
    return made


def put(folder, batches):
    folder.mkdir(parents=True)
    for name, (raw, *_) in batches.items():
        (folder / name).write_bytes(raw)


def check(data_dir, batches):
    images, labels = datasets.load("cifar10", "train", data_dir)
    expected = np.concatenate([batches[name][1] for name in NAMES[:5]]).reshape(-1, 3, 32, 32)
    assert (images.numpy() == expected).all()
    assert labels.tolist() == [label for name in NAMES[:5] for label in batches[name][2]]
    assert (datasets.load("cifar10", "test", data_dir)[0].shape) == (4, 3, 32, 32)


@pytest.mark.parametrize("place", ["cifar10", "cifar-10-batches-py", "cifar10/cifar-10-batches-py"])
def test_unpacked_batches_are_read_where_people_keep_them(batches, tmp_path, place):
    put(tmp_path / place, batches)
    check(tmp_path, batches)


def test_the_archive_is_read_as_torchvision_leaves_it(batches, tmp_path):
    put(tmp_path / "cifar-10-batches-py", batches)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", arcname="cifar-10-batches-py")
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        path.unlink()
    check(tmp_path, batches)


def test_a_truncated_batch_is_refused_by_its_hash(batches, tmp_path):
    put(tmp_path / "cifar10", batches)
    path = tmp_path / "cifar10" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"data_batch_3 is not the file it should be.*MD5"):
        datasets.load("cifar10", "train", tmp_path)


class Command:
    """The code that a hostile pickle would run."""

    def __reduce__(self):
        return os.system, ("touch harmed",)


def test_a_pickle_that_is_more_than_arrays_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile = pickle.dumps({b"data": Command(), b"labels": []}, protocol=2)
    with pytest.raises(
        UserError, match=r"of CIFAR-10 is not a readable batch \(it asks for .*system"
    ):
        cifar10._batch(hostile, "data_batch_1")
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("batch", [{b"data": np.zeros((2, 5), np.uint8)}, {b"labels": [1]}, [1]])
def test_a_pickle_of_something_else_is_told(batch):
    with pytest.raises(UserError, match="data_batch_1 of CIFAR-10 is not a readable batch"):
        cifar10._batch(pickle.dumps(batch, protocol=2), "data_batch_1")


def test_what_to_do_where_there_is_none(batches, tmp_path):
    with pytest.raises(UserError, match=r"cifar10 cannot be had\. Tried:") as told:
        datasets.load("cifar10", "train", tmp_path)
    for word in ("cifar-10-python.tar.gz as it is", str(tmp_path), "data=", "data_batch_1"):
        assert word in str(told.value)


def test_binary_batches_are_read_where_there_are_no_others(batches, tmp_path, monkeypatch):
    raw = {
        f"{name}.bin": b"".join(
            bytes([label]) + row.tobytes() for label, row in zip(labels, pixels, strict=True)
        )
        for name, (_, pixels, labels) in batches.items()
    }
    known = tuple(
        files.VerifiedFile(name, hashlib.sha256(content).hexdigest())
        for name, content in raw.items()
    )
    both = dataclasses.replace(
        files.CIFAR10, otherwise=dataclasses.replace(files.CIFAR10_BINARY, files=known)
    )
    monkeypatch.setitem(files.FILE_SETS, "cifar10", both)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name, content in raw.items():
        (tmp_path / "cifar-10-batches-bin" / name).write_bytes(content)
    check(tmp_path, batches)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"0" * 3073)
    with pytest.raises(UserError, match="SHA-256"):
        datasets.load("cifar10", "test", tmp_path)

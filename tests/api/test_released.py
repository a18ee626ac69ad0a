"""Releases as objects: arrays, forms, names, and a certificate that is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedsynth.api.released import ReleasedFile, Releases, UnknownRelease
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.storage.releases import ReleaseStore

IMAGES = torch.linspace(-0.5, 1.5, 3 * 16).reshape(3, 1, 4, 4)
LABELS = torch.tensor([2, 0, 1])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with releases of two methods and a model."""
    store = ReleaseStore(tmp_path)
    for name in ("psg-eps1-seed0", "psg-eps10-seed0", "dm-eps1-seed0"):
        for stage in (1, 2, 10):
            store.save(name, stage, SyntheticSet(IMAGES + stage, LABELS))
    store.save("dp_sgd-eps1-seed0", 1, ReleasedModel({"w": torch.ones(2)}, 4))
    return tmp_path


def test_names_stand_for_the_last_stage_of_an_only_job(run: Path) -> None:
    releases = Releases(run, {})
    assert len(releases) == 10
    assert releases["dm"].name == "dm-eps1-seed0/stage-10"
    assert releases["psg-eps1-seed0"].name == "psg-eps1-seed0/stage-10"
    assert releases["psg-eps1-seed0/stage-2"].images[0, 0, 0, 0] == 1.5
    with pytest.raises(UnknownRelease, match="several releases: psg-eps1"):
        releases["psg"]
    with pytest.raises(UnknownRelease, match="there is no release 'dmm'"):
        releases["dmm"]
    assert "dmm" not in releases
    assert releases.get("dmm") is None


def test_arrays_and_forms_agree(run: Path) -> None:
    release = Releases(run, {})["psg-eps1-seed0/stage-1"]
    assert (release.images == (IMAGES + 1).numpy()).all()
    assert release.labels.tolist() == [2, 0, 1]
    image, label = release.to_torch()[0]
    assert torch.equal(image, IMAGES[0] + 1)
    assert label == 2
    frame = release.to_pandas()
    assert frame.shape == (3, 17)
    assert frame["label"].tolist() == [2, 0, 1]
    assert (frame.to_numpy()[:, :16] == release.images.reshape(3, 16)).all()
    assert "3 records" in repr(release)
    assert "no certificate" in release._repr_html_()


def test_a_model_has_no_records(run: Path) -> None:
    release = Releases(run, {})["dp_sgd"]
    assert release.is_model
    for use in (lambda: release.images, release.to_torch, release.to_pandas):
        with pytest.raises(UserError, match="holds a model"):
            use()


def test_bytes_are_scaled(tmp_path: Path) -> None:
    file = ReleaseStore(tmp_path).save(
        "x-eps1-seed0",
        1,
        SyntheticSet(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8), LABELS[:1]),
    )
    assert ReleasedFile(file).images.max() == 1.0


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a released file"):
        ReleasedFile(tmp_path / "b.npz")
    with pytest.raises(UserError, match="cannot be read as a release"):
        ReleasedFile(tmp_path / "a.npz").images  # noqa: B018

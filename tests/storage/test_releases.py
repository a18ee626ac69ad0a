"""Releases on disk: equal to the bit, without pickle, raw records apart."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_outcomes import model, soft, synthetic

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.storage.pictures import contact_sheet
from fedsynth.storage.releases import ReleaseStore, release_name, write_archive

OTHER_NETWORK = dataclasses.replace(model(), network="opacus_cnn")


@pytest.mark.parametrize("outcome", [synthetic(), synthetic(7, 3), soft(), model(), OTHER_NETWORK])
def test_releases_come_back_bit_by_bit_and_without_pickle(tmp_path: Path, outcome: Outcome) -> None:
    releases = ReleaseStore(tmp_path)
    name = release_name("psg", 0.5, 3)
    assert name == "psg-eps0.5-seed3"
    path = releases.save(name, 2, outcome)
    with np.load(path, allow_pickle=False) as file:
        assert all(file[key].dtype != object for key in file.files)
    assert releases.exists(name, 2)
    assert not releases.exists(name, 1)
    back = releases.load(name, 2)
    assert type(back) is type(outcome)
    if isinstance(outcome, SyntheticSet) and isinstance(back, SyntheticSet):
        assert torch.equal(back.images, outcome.images)
        assert torch.equal(back.labels, outcome.labels)
        assert back.labels.dtype == torch.int64
        assert (back.soft is None) == (outcome.soft is None)
        if back.soft is not None and outcome.soft is not None:
            assert torch.equal(back.soft, outcome.soft)
    if isinstance(outcome, ReleasedModel) and isinstance(back, ReleasedModel):
        assert (back.width, back.network) == (outcome.width, outcome.network)
        assert set(back.state) == set(outcome.state)
        assert all(torch.equal(back.state[k], outcome.state[k]) for k in outcome.state)


def test_equal_outcomes_give_equal_bytes_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_archive(tmp_path / "a.npz", synthetic()).read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert write_archive(tmp_path / "b.npz", synthetic()).read_bytes() == before


def test_a_large_set_is_written_and_read_in_little_more_memory_than_its_own(tmp_path: Path) -> None:
    """Pooled sets took up to nine times their size while they were written."""
    images, labels = torch.rand(20_000, 1, 28, 28), torch.arange(20_000) % 10
    size = images.numel() * 4
    releases = ReleaseStore(tmp_path)
    releases.save("warm", 1, synthetic())  # imports
    tracemalloc.start()  # counts numpy's arrays and bytes, not tensors of torch
    try:
        releases.save("large", 1, SyntheticSet(images, labels))
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        back = releases.load("large", 1)
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(back, SyntheticSet)
    assert torch.equal(back.images, images)
    assert written < 0.5 * size
    assert read < 1.5 * size


def test_bytes_are_shown_and_kept_like_numbers_and_only_raw_records_are_disclosed(
    tmp_path: Path,
) -> None:
    releases, made = ReleaseStore(tmp_path), synthetic()
    levels = (made.images.clamp(0, 1) * 255).round().to(torch.uint8)
    in_bytes = dataclasses.replace(made, images=levels)
    in_floats = dataclasses.replace(made, images=levels / 255)
    assert np.array_equal(contact_sheet(in_bytes), contact_sheet(in_floats))
    releases.save("x", 1, in_bytes)
    assert releases.load("x", 1).images.dtype == torch.uint8
    releases.save("y", 1, dataclasses.replace(in_bytes, raw=True))
    releases.drop_raw("x")
    releases.drop_raw("y")
    assert releases.exists("x", 1)
    assert not releases.exists("y", 1)


def test_an_object_array_is_refused(tmp_path: Path) -> None:
    releases = ReleaseStore(tmp_path)
    path = releases.save("x", 1, synthetic())
    np.savez(path, images=np.array([{}], dtype=object), labels=np.zeros(1))
    with pytest.raises(UserError, match="cannot be read as a release"):
        releases.load("x", 1)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read as a release"):
        releases.load("x", 1)
    with pytest.raises(UserError, match="no release"):
        releases.load("x", 2)

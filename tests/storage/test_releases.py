"""Releases on disk: equal to the bit, without pickle, raw records apart."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_outcomes import model, soft, synthetic

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.storage.pictures import contact_sheet
from fedsynth.storage.releases import ReleaseStore, archive, release_name

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


def test_equal_outcomes_give_equal_bytes_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive(synthetic())
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert archive(synthetic()) == before


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

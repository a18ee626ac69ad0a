"""A party's file of its own records: those of its part, and no others."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.experiment.own_records import read_own_records, write_own_records
from fedsynth.experiment.scenario import party_records

SCENARIO = tiny.SCENARIOS["together"]


def test_the_file_holds_the_records_of_its_party_in_their_order(tmp_path):
    path = tmp_path / "records.npz"
    write_own_records(SCENARIO, 1, path)
    own, whole = read_own_records(SCENARIO, 1, path), party_records(SCENARIO, 1)
    assert torch.equal(own.images, whole.images)
    assert torch.equal(own.labels, whole.labels)
    with np.load(path) as file:
        assert len(file["y"]) == len(whole.labels) < 400


def test_records_of_another_party_or_number_are_refused(tmp_path):
    """Noise is calibrated to the public numbers."""
    path = tmp_path / "records.npz"
    write_own_records(SCENARIO, 1, path)
    with np.load(path) as file:
        fewer = {"x": file["x"][1:], "y": file["y"][1:]}
    np.savez(path, **fewer)
    with pytest.raises(UserError, match="public for party 1 are"):
        read_own_records(SCENARIO, 1, path)
    with pytest.raises(UserError, match="there is no party 7"):
        read_own_records(SCENARIO, 7, path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all"])
def test_what_is_no_file_of_records_is_an_error(tmp_path, content):
    path = tmp_path / "records.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        read_own_records(SCENARIO, 0, path)
    with pytest.raises(UserError, match="cannot be read"):
        read_own_records(SCENARIO, 0, tmp_path / "none.npz")

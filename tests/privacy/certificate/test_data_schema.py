"""The schema in a certificate: types and shapes of the arrays, and no path of the party's disk."""

from __future__ import annotations

import dataclasses

import torch

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.data import registry as datasets
from fedsynth.privacy.certificate.data_schema import data_schema

SET = SyntheticSet(torch.zeros(4, 1, 28, 28), torch.tensor([0, 1, 2, 3]))


def test_a_data_set_of_ones_own_has_no_folder_in_its_name() -> None:
    info = dataclasses.replace(datasets.find("shapes").info, name="file:/home/ward/patients.npz")
    assert data_schema(SET, info, (0, 1))["data"]["name"] == "patients"
    assert data_schema(SET, datasets.find("shapes").info, (0, 1))["data"]["name"] == "shapes"


def test_arrays_have_their_types_and_shapes() -> None:
    schema = data_schema(SET, datasets.find("shapes").info, (3, 4))
    assert schema["kind"] == "synthetic set"
    assert schema["arrays"]["images"] == {"type": "float32", "shape": [4, 1, 28, 28]}
    assert schema["arrays"]["labels"] == {"type": "int64", "shape": [4]}
    assert schema["data"]["classes_of_stage"] == [3, 4]
    model = data_schema(ReleasedModel({"weight": torch.zeros(3)}, 4), SET_INFO, (0,))
    assert (model["kind"], model["arrays"]["weight"]["shape"]) == ("model", [3])


SET_INFO = datasets.find("shapes").info

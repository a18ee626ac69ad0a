"""The file with the records of one party of a shared data set: a node needs no others.

`fedsynth nodes init` writes it. A party whose policy names one (`data.records`) reads this file in
place of the whole data set.

Claim: a party with such a file holds no record of another party.
Assumption: the number of records per class and party is public, as plans state it. A file with
other numbers is refused, because the noise is calibrated to the public ones.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from fedsynth.core.errors import UserError
from fedsynth.data.records import Records
from fedsynth.experiment.scenario import raw_party_records, scenario_stages, transformed
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.storage.files import write_file


def write_own_records(scenario: ScenarioConfig, party: int, path: Path) -> None:
    """Write the records of one party of a data set that is here.

    Raises:
        UserError: The data set is not here, or the disk refuses.
    """
    records = raw_party_records(scenario, party)
    block = io.BytesIO()
    np.savez_compressed(block, x=records.images.numpy(), y=records.labels.numpy())
    write_file(path, block.getvalue())


def read_own_records(scenario: ScenarioConfig, party: int, path: Path) -> Records:
    """The records in a party's own file, as the scenario transforms them.

    Raises:
        UserError: It is no such file, or it has other numbers of records than are public.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = torch.from_numpy(file["x"]), torch.from_numpy(file["y"])
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError),
        *(zlib.error, zipfile.BadZipFile),
    ) as error:
        raise UserError(f"data.records={path} cannot be read: {error}.") from error
    facts = [i for s in scenario_stages(scenario) for i in s.parties if i.party == party]
    if not facts:
        raise UserError(f"data.parties={scenario.parties}: there is no party {party}.")
    values, numbers = labels.unique(return_counts=True)
    counts = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    if len(images) != len(labels) or counts != facts[0].class_counts:
        raise UserError(
            f"data.records={path} holds {counts} records by class; public for party {party} are "
            f"{facts[0].class_counts}. Write the file again with fedsynth nodes init."
        )
    return transformed(scenario, Records(images, labels))

"""Schema files: what they state is kept, and what they state wrongly is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from own_files import SCHEMA, write_visits

from fedsynth.core.errors import UserError
from fedsynth.core.types import Column
from fedsynth.data.formats.schema_file import needed_schema, read_schema, template


def test_a_schema_is_read(tmp_path: Path) -> None:
    schema = needed_schema(write_visits(tmp_path))
    assert schema.columns == (
        Column("age", 0, 120, whole=True),
        Column("ward", categories=("north", "south")),
    )
    assert schema.label == Column("outcome", categories=("healthy", "ill"))
    assert schema.party == Column("hospital", categories=("city", "lake", "hill"))
    assert (schema.ignored, schema.missing, schema.test) == (("id",), {"age": 50}, 0.2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("label: outcome", "labl: outcome", "unknown key 'labl'. Did you mean 'label'"),
        ("label: outcome", "label: outcom", "label='outcom' is not one of the columns. Did you"),
        ("label: outcome", "label: age", "label='age' has a range, and must have categories"),
        ("label: outcome\n", "", "states no label"),
        ("party: hospital", "party: outcome", "label and party are both 'outcome'"),
        ("[0, 120]", "[120, 0]", r"column 'age': range=\[120, 0\] must be \[LOW, HIGH\]"),
        ("[0, 120]", "[LOW, HIGH]", r"range=\['LOW', 'HIGH'\] must be .* stated by you"),
        ("[0, 120]", "[0, .inf]", r"range=\[0, inf\] must be"),
        ("missing: 50", "missing: 500", "missing=500 must be a number of the range"),
        ("whole: true", "whole: 3", "whole=3 must be true or false"),
        ("whole: true", "hole: true", "unknown key 'hole'. Did you mean 'whole'"),
        ("[north, south]", "[CATEGORY]", "must list different categories, stated by you"),
        ("[north, south]", "[north, north]", "must list different categories"),
        ("[north, south]", "north", "categories='north' must list"),
        ("id: ignore", "id: skip", "column 'id' is 'skip', and must be"),
        ("party: hospital", "test: 2", "test=2 must be a share between 0 and 1, or a file"),
        ("party: hospital", "test: later.csv", "there is no file .*later.csv"),
        ("columns:", "columns: [", "is not valid YAML"),
        (SCHEMA, "- a", "must hold keys and values"),
        (SCHEMA, "columns: 3", "columns=3 must be a mapping"),
        (SCHEMA, "test: 0.5", "states no columns besides label and party"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    from fedsynth.data import registry as datasets

    assert old in SCHEMA
    path = write_visits(tmp_path, SCHEMA.replace(old, new))
    with pytest.raises(UserError, match=message):
        datasets.find(f"file:{path}")


def test_a_template_is_yaml_that_is_refused_until_it_is_filled_in(tmp_path: Path) -> None:
    path = write_visits(
        tmp_path, template("visits.csv", [("age", True), ("yes", False)], "Looked.")
    )
    text = (tmp_path / "visits.schema.yaml").read_text()
    assert text.startswith("# Schema of visits.csv. Looked.\n")
    assert list(yaml.safe_load(text)["columns"]) == ["age", "yes"]
    with pytest.raises(UserError, match="stated by you"):
        read_schema(path)

"""Releases and exported folders as `fedsynth verify` finds them."""

from __future__ import annotations

from pathlib import Path

import certified
import pytest

from fedsynth.api.export.folder import export
from fedsynth.cli.verify_release import export_lines, exported
from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine


def test_an_exported_folder_is_told_from_a_release(here: Engine, tmp_path: Path) -> None:
    folder = certified.folder_of(certified.released("dp_merf", tmp_path / "run", here, "table"))
    assert exported(folder) is None
    assert exported(folder / "stage-1.privacy.json") is None
    target = export(folder / "stage-1.npz", tmp_path / "out", "csv")
    assert exported(target) == exported(target / "privacy.json") == target
    assert export_lines(target)[0].startswith("exported as csv: the data files hold")
    (target / "data.csv").unlink()
    with pytest.raises(UserError, match=r"data\.csv is missing"):
        export_lines(target)
    (target / "certified" / "stage-1.npz").unlink()
    with pytest.raises(UserError, match="without its certified release"):
        exported(target)

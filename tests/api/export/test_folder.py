"""Exported folders: complete or absent, equal to the certified release, and found out if not."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import exported
import numpy as np
import pytest
import torch

import fedsynth
from fedsynth.api.export.folder import export, problems_of_export
from fedsynth.api.export.forms import FORMS
from fedsynth.cli.verify import main as verify
from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine

PAIRS = [
    *(("image", form) for form in FORMS),
    *(("table", form) for form in ("csv", "parquet", "torch", "hf")),
    *(("model", "torch"), ("reference", "csv")),
]


@pytest.fixture(scope="module")
def releases(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An archive of each kind."""
    return exported.released(tmp_path_factory.mktemp("releases"), here)


@pytest.mark.parametrize(("kind", "form"), PAIRS)
def test_an_export_is_verified_loaded_and_the_release(
    releases: dict[str, Path],
    kind: str,
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = export(releases[kind], tmp_path / "out", form)
    for place in (folder, folder / "privacy.json"):
        assert verify([str(place)]) == 0
        shown = capsys.readouterr().out
        assert f"exported as {form}: the data files hold" in shown
        assert "README.md" in shown
    certificate = releases[kind].with_name(releases[kind].stem + ".privacy.json")
    assert (folder / "privacy.json").read_bytes() == certificate.read_bytes()
    loaded, source = fedsynth.load(folder), fedsynth.load(releases[kind])
    assert loaded.certificate.body == source.certificate.body
    if kind != "model":
        assert (loaded.images == source.images).all()
        assert loaded.to_pandas().equals(source.to_pandas())
        assert torch.equal(loaded.to_torch()[0][0], source.to_torch()[0][0])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def changed_value(folder: Path) -> str:
    place = folder / "data.csv"
    text = place.read_text()
    place.write_text(text.replace("1", "2", 1) if "1" in text else text + "0\n")
    return "data.csv does not hold"


def another_file(folder: Path) -> str:
    (folder / "more.csv").write_text("age\n1\n")
    return "more.csv is no part"


def missing(folder: Path) -> str:
    (folder / "data.csv").unlink()
    return "data.csv is missing"


def other_certificate(folder: Path) -> str:
    place = folder / "privacy.json"
    place.write_bytes(place.read_bytes() + b" ")
    return "privacy.json does not hold"


def other_scale(folder: Path) -> str:
    content = json.loads((folder / "export.json").read_text())
    content["class_names"].reverse()
    (folder / "export.json").write_text(json.dumps(content))
    return "export.json does not hold"


def damaged(folder: Path) -> str:
    (folder / "export.json").write_text("[")
    return "export.json is damaged"


def other_release(folder: Path) -> str:
    (place,) = (folder / "certified").glob("*.npz")
    place.write_bytes(place.read_bytes()[:-1] + b"x")
    return f"{place.name} was changed"


def no_release(folder: Path) -> str:
    shutil.rmtree(folder / "certified")
    return "without its certified release"


ATTACKS = (
    *(changed_value, another_file, missing, other_certificate, other_scale, damaged),
    *(other_release, no_release),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_changed_export_is_found_out(
    releases: dict[str, Path], attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(releases["table"], tmp_path / "out", "csv")
    (folder / "README.md").write_text("a card of the holder")
    assert problems_of_export(folder) == []
    words = attack(folder)
    assert verify([str(folder)]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert not shown.out


def test_other_encodings_of_the_same_are_equal_and_of_others_are_not(
    releases: dict[str, Path], tmp_path: Path
) -> None:
    from PIL import Image

    folder = export(releases["image"], tmp_path / "out", "png-folder")
    place = sorted(folder.rglob("images/*/*.png"))[0]
    before = place.read_bytes()
    with Image.open(place) as picture:
        pixels = np.asarray(picture).copy()
    Image.fromarray(pixels).save(place, compress_level=0)
    assert place.read_bytes() != before
    assert problems_of_export(folder) == []
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(place)
    assert len(problems_of_export(folder)) == 1
    place.write_bytes(b"no picture")
    assert len(problems_of_export(folder)) == 1


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "interrupted"]
)
def test_nothing_is_left_of_an_export_that_fails(
    releases: dict[str, Path], error: BaseException, tmp_path: Path, monkeypatch
) -> None:
    real = Path.write_bytes

    def failing(path: Path, data: bytes) -> int:
        if path.name == "export.json":
            raise error
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    kind = UserError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(kind, match="no space is left.*--out" if kind is UserError else None):
        export(releases["table"], tmp_path / "new" / "out", "csv")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(releases: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="exists: an export is written to a new folder"):
        export(releases["table"], tmp_path / "out", "csv")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_release_is_not_exported(releases: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(releases["table"].parent, tmp_path / "release"))
    (folder / releases["table"].with_suffix(".csv").name).write_text("age\n")
    with pytest.raises(UserError, match="was changed"):
        export(folder / releases["table"].name, tmp_path / "out", "csv")
    (folder / f"{releases['table'].stem}.privacy.json").unlink()
    with pytest.raises(UserError, match=r"privacy\.json"):
        export(folder / releases["table"].name, tmp_path / "out", "csv")
    assert not (tmp_path / "out").exists()

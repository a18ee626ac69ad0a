"""The app bundle: names and defaults, and the check of a node that runs its own installation."""

from __future__ import annotations

import io
import sys
import zipfile

import pytest

from fedsynth.core.version import own_version
from fedsynth.engine.app_bundle import refuse_bundle, write_app


def bundle(folder, **changes: str) -> bytes:
    """The content of a bundle of a folder, as `flwr build` packs it, with changed files."""
    block = io.BytesIO()
    with zipfile.ZipFile(block, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                archive.writestr(name, changes.pop(path.name.split(".")[0], path.read_text()))
        for name, text in changes.items():
            archive.writestr(f"fedsynthapp/{name}.py", text)
        archive.writestr(".info/CONTENT", "hashes")
    return block.getvalue()


@pytest.fixture
def app(tmp_path):
    write_app(tmp_path / "app")
    return tmp_path / "app"


def test_the_folder_leads_to_the_apps_and_holds_nothing_else(app, monkeypatch):
    files = sorted(p.name for p in app.rglob("*") if p.is_file())
    assert files == ["__init__.py", "pyproject.toml"]
    monkeypatch.syspath_prepend(app)
    monkeypatch.delitem(sys.modules, "fedsynthapp", raising=False)
    import fedsynthapp

    from fedsynth.experiment import flower_apps as apps

    assert fedsynthapp.client_app is apps.client_app
    assert fedsynthapp.server_app is apps.server_app


def test_flower_packs_it_into_a_bundle_that_the_node_takes(app):
    from flwr.cli.build import build_fab_from_disk

    assert refuse_bundle(build_fab_from_disk(app)) == ""
    assert refuse_bundle(bundle(app)) == ""


def test_a_bundle_of_another_version_is_refused_with_both_versions(app):
    text = (app / "pyproject.toml").read_text().replace(own_version(), "9.9.9", 1)
    said = refuse_bundle(bundle(app, pyproject=text))
    assert "asks for fedsynth '9.9.9'" in said
    assert f"fedsynth {own_version()}. Install" in said


def test_other_code_is_refused_and_never_imported(app):
    for content in (
        bundle(app, __init__="raise SystemExit(3)"),
        bundle(app, more="raise SystemExit(3)"),
    ):
        assert "holds other code" in refuse_bundle(content)


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"x" * 1000])
def test_what_is_no_bundle_is_refused(content):
    assert "cannot be read" in refuse_bundle(content)

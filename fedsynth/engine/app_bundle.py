"""The app bundle (FAB) of fedsynth: the folder that `flwr run` takes, and the check of a node.

The bundle holds names and defaults, no code and no data: every machine runs its own installation.
"""

from __future__ import annotations

import io
import tomllib
import zipfile
from pathlib import Path

from fedsynth.core.version import own_version
from fedsynth.storage.files import write_file

APPS = "fedsynth.experiment.flower_apps"
_CONFIG, _PACKAGE, _INFO = "pyproject.toml", "fedsynthapp/__init__.py", ".info/"
_MOST_BYTES = 100_000  # of one file of the bundle

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedsynthapp"
version = "{version}"
description = "fedsynth on real nodes"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedsynth"

[tool.flwr.app.components]
serverapp = "fedsynthapp:server_app"
clientapp = "fedsynthapp:client_app"

[tool.flwr.app.config]
job = ""
proposal = ""
parties = 1
timeout = 3600.0
"""


def _package(apps: str) -> str:
    return (
        f'"""The apps of fedsynth."""\n\nfrom {apps} import client_app, server_app\n\n'
        '__all__ = ["client_app", "server_app"]\n'
    )


def write_app(folder: Path, apps: str = APPS) -> None:
    """Write the folder that `flwr run` takes; it names `client_app` and `server_app` of a module
    that every node has installed."""
    write_file(folder / _CONFIG, _PROJECT.format(version=own_version()).encode())
    write_file(folder / _PACKAGE, _package(apps).encode())


def refuse_bundle(content: bytes) -> str:
    """Why this installation does not answer for an app bundle; empty if the bundle is its own.

    Nothing of the bundle is imported or written.
    """
    own = own_version()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            names = {name for name in sizes if not name.startswith(_INFO)}
            if any(sizes[name] > _MOST_BYTES for name in names):
                raise ValueError("a file is too large")
            texts = {name: archive.read(name).decode() for name in names}
        project = tomllib.loads(texts[_CONFIG])["project"]
        version = str(project["version"])[:40]
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, RuntimeError):
        return f"the app bundle of this run cannot be read; this node runs fedsynth {own}."
    if project.get("name") == "fedsynthapp" and version != own:
        return (
            f"the app bundle of this run asks for fedsynth {version!r}; this node runs its own "
            f"installation, fedsynth {own}. Install the same version on both sides."
        )
    if names != {_CONFIG, _PACKAGE} or texts[_PACKAGE] != _package(APPS):
        return (
            "the app bundle of this run holds other code than the bundle of fedsynth, and this "
            f"node runs its own installation only, fedsynth {own}. Submit with "
            "`fedsynth nodes run`."
        )
    return ""

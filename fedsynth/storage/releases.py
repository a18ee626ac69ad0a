"""Releases of a run on disk: `.npz` archives of plain arrays, read without pickle, and pictures.

The same outcome always gives the same bytes, so releases of two runs are compared with `cmp`.
Stages count from 1.
"""

from __future__ import annotations

import contextlib
import shutil
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.storage.files import atomic_file, disk_errors, make_directories, write_file
from fedsynth.storage.pictures import contact_sheet, png

WIDTH_KEY, NETWORK_KEY = "fedsynth.width", "fedsynth.network"  # beside the weights of a model
DEFAULT_NETWORK = "convnet"  # of an archive that names none
RELEASES, RAW_RECORDS = "releases", "disclosed"
CERTIFICATE_SUFFIX, REGISTRY_SUFFIX = ".privacy.json", ".registry.yaml"  # beside each release


def release_name(method: str, epsilon: float, seed: int) -> str:
    """The folder of one job's releases."""
    return f"{method}-eps{repr(float(epsilon)).removesuffix('.0')}-seed{seed}"


class ReleaseStore:
    """The releases in a run directory, by the name of their job and their stage."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def save(self, name: str, stage: int, outcome: Outcome, table: str | None = None) -> Path:
        """Write a stage's outcome and, for a synthetic set, its picture or its rows as CSV.

        Raw records, which only a non-private reference releases, go to a folder of their own.

        Args:
            name: The job, as from `release_name`.
            stage: The stage, from 1.
            outcome: The outcome.
            table: The rows of a synthetic table as CSV, in place of a picture.
        """
        if isinstance(outcome, ReleasedModel):
            stem = self._run / RELEASES / _component(name) / f"model-{stage}"
        else:
            folder = RAW_RECORDS if outcome.raw else RELEASES
            stem = self._run / folder / _component(name) / f"stage-{stage}"
            if table is not None and not outcome.raw:
                write_file(stem.with_suffix(".csv"), table.encode())
            elif not outcome.raw:
                write_file(stem.with_suffix(".png"), png(contact_sheet(outcome)))
        return write_archive(stem.with_suffix(".npz"), outcome)

    def load(self, name: str, stage: int) -> Outcome:
        """Read a stage's outcome, equal to the bit to what was saved.

        Raises:
            UserError: There is none, or its file is damaged.
        """
        path = self._find(name, stage)
        if path is None:
            raise UserError(f"{self._run} holds no release of {name} for stage {stage}.")
        return unarchive(path)

    def exists(self, name: str, stage: int) -> bool:
        """True if this outcome is on disk."""
        return self._find(name, stage) is not None

    def is_model(self, name: str, stage: int) -> bool:
        """True if this outcome is on disk and a model, not a set."""
        path = self._find(name, stage)
        return path is not None and path.name.startswith("model-")

    def files(self, name: str, stage: int) -> list[Path]:
        """The files of this outcome: its archive first, then its picture or its rows.

        Raises:
            UserError: There is none.
        """
        path = self._find(name, stage)
        if path is None:
            raise UserError(f"{self._run} holds no release of {name} for stage {stage}.")
        shown = (path.with_suffix(suffix) for suffix in (".csv", ".png"))
        return [path, *(file for file in shown if file.is_file())]

    def certificate(self, name: str, stage: int) -> Path:
        """The place of the certificate of an outcome, beside it.

        Raises:
            UserError: There is no such outcome.
        """
        return self.files(name, stage)[0].with_suffix(CERTIFICATE_SUFFIX)

    def drop_raw(self, name: str) -> None:
        """Remove the raw records of a reference, which only its evaluation needs."""
        shutil.rmtree(self._run / RAW_RECORDS / _component(name), ignore_errors=True)
        with contextlib.suppress(OSError):
            (self._run / RAW_RECORDS).rmdir()

    def _find(self, name: str, stage: int) -> Path | None:
        for folder in (RELEASES, RAW_RECORDS):
            for kind in ("stage", "model"):
                path = self._run / folder / _component(name) / f"{kind}-{stage}.npz"
                if path.is_file():
                    return path
        return None


def _component(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"not a name for a release: {name!r}")
    return name


def write_archive(path: Path, outcome: Outcome) -> Path:
    """Write the npz archive of an outcome, array by array: large sets are not held twice.

    Object arrays, hence pickles, are refused.

    Raises:
        UserError: The disk refuses.
    """
    if isinstance(outcome, SyntheticSet):
        arrays = {name: _numpy(tensor) for name, tensor in outcome.to_arrays().items()}
    else:
        for key in {WIDTH_KEY, NETWORK_KEY} & set(outcome.state):
            raise ValueError(f"a model's array may not be called {key!r}")
        arrays = {name: _numpy(tensor) for name, tensor in outcome.state.items()}
        arrays[WIDTH_KEY] = np.asarray(outcome.width, dtype=np.int64)
        if outcome.network != DEFAULT_NETWORK:
            arrays[NETWORK_KEY] = np.frombuffer(outcome.network.encode(), dtype=np.uint8)
    with disk_errors(path):
        make_directories(path.parent)
        with atomic_file(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
            for name, array in arrays.items():
                # A ZipInfo of our own carries no clock time: equal arrays give equal bytes.
                with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    return path


def unarchive(path: Path) -> Outcome:
    """Read what `write_archive` wrote; a damaged or foreign file is a `UserError`."""
    if path.is_file() and not zipfile.is_zipfile(path):  # numpy would advise to unpickle it
        raise UserError(f"{path} cannot be read as a release: it is no npz file, or is cut off.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(np.asarray(file[name])) for name in file.files}
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:  # RuntimeError: flags or a compression that zipfile does not know
        raise UserError(f"{path} cannot be read as a release: {error}") from error
    if WIDTH_KEY in arrays:
        width = int(arrays.pop(WIDTH_KEY))
        network = arrays.pop(NETWORK_KEY, None)
        name = DEFAULT_NETWORK if network is None else bytes(network.byte().tolist()).decode()
        return ReleasedModel(arrays, width, name)
    try:
        return SyntheticSet.from_arrays(arrays)
    except ValueError as error:
        raise UserError(f"{path} is not a release: {error}.") from error


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()

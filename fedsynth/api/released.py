"""Releases as objects: arrays, the checked certificate, and forms for torch and pandas."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedsynth.api.export.folder import export
from fedsynth.api.export.source import columns_of, decoded
from fedsynth.core.errors import UserError, nearest
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.core.types import Column
from fedsynth.privacy import certificate as certificates
from fedsynth.privacy.certificate.words import summary
from fedsynth.storage.releases import CERTIFICATE_SUFFIX, RELEASES, unarchive

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


class ReleasedFile:
    """One released file (`.npz`), read when it is first used.

    Args:
        path: The file.
        data: Keys of the data set that it imitates, where its run is known.
    """

    def __init__(self, path: str | Path, data: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.data: Mapping[str, Any] = data or {}
        if not self.path.is_file() or self.path.suffix != ".npz":
            raise UserError(f"{self.path} is not a released file (NAME.npz).")

    @property
    def name(self) -> str:
        """Job and stage: `psg-eps1-seed0/stage-1`."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @functools.cached_property
    def outcome(self) -> Outcome:
        """The content: a `SyntheticSet` or a `ReleasedModel`, as torch tensors."""
        return unarchive(self.path)

    @property
    def is_model(self) -> bool:
        """True if a model was released and not a set."""
        return isinstance(self.outcome, ReleasedModel)

    @property
    def images(self) -> np.ndarray:
        """The records, float32 [n, channels, height, width] with 0 black and 1 white.

        Noise may put values outside. Of a table [n, columns, 1, 1], each column on its public
        range: `to_pandas` decodes them."""
        return np.asarray(self._set().pixels())

    @property
    def labels(self) -> np.ndarray:
        """The labels, int64 [n]."""
        return np.asarray(self._set().labels)

    @property
    def soft_labels(self) -> np.ndarray | None:
        """Probabilities of all classes, float32 [n, classes], where the method releases them."""
        soft = self._set().soft
        return None if soft is None else np.asarray(soft)

    @functools.cached_property
    def certificate(self) -> certificates.Verdict:
        """The certificate beside the file, checked; who signed is for the reader to establish.

        Raises:
            CertificateDamaged: The certificate or the release was changed.
            UserError: There is no certificate.
        """
        return certificates.read(self.path)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a table, as the certificate states them; empty for images."""
        return columns_of(self.certificate.body)

    def to_torch(self) -> TensorDataset:
        """A torch data set of (record, label); values as in `images`."""
        from torch.utils.data import TensorDataset

        return TensorDataset(self._set().pixels(), self._set().labels)

    def to_pandas(self) -> pd.DataFrame:
        """One row per record: the decoded columns of a table, or the pixels; then `label`.

        Raises:
            UserError: The file holds a model, or a table whose certificate is missing or damaged.
        """
        released = self._set()
        table = released.images.shape[2:] == (1, 1)
        columns = self.columns if table else ()
        if columns:
            frame = decoded(columns, released.images)
        else:
            rows = self.images.reshape(len(released.labels), -1)
            frame = pd.DataFrame(rows, columns=[f"pixel_{i}" for i in range(rows.shape[1])])
        return frame.assign(label=self.labels)

    def export(self, path: str | Path, form: str) -> Path:
        """Write the release into a new folder for other programs, with its card and certificate.

        Args:
            path: The folder; it must not exist.
            form: `png-folder`, `csv`, `parquet`, `torch` or `hf`.

        Returns:
            The folder, for `fedsynth.load` and `fedsynth verify`.

        Raises:
            UserError: The form is unknown or cannot hold the release, the certificate is missing or
                damaged, or the folder exists or cannot be written.
        """
        return export(self.path, Path(path), form)

    def _set(self) -> SyntheticSet:
        if isinstance(self.outcome, ReleasedModel):
            raise UserError(
                f"{self.path} holds a model and no records: `.outcome.state` has its weights."
            )
        return self.outcome

    def _promises(self) -> str:
        if not self.path.with_name(self.path.stem + CERTIFICATE_SUFFIX).is_file():
            return "no certificate"
        try:
            return summary(self.certificate)
        except UserError as error:
            return str(error)

    def __repr__(self) -> str:
        held = "model" if self.is_model else f"{len(self.labels):,} records"
        return f"<release {self.name}: {held}>"

    def _repr_html_(self) -> str:
        held = "a model" if self.is_model else f"{len(self.labels):,} records"
        return f"<p><b>{html.escape(self.name)}</b>: {held}<br>{html.escape(self._promises())}</p>"


class UnknownRelease(UserError, KeyError):
    """A run has no release of this name."""

    __str__ = Exception.__str__  # that of KeyError shows the repr of the message


class Releases(Mapping[str, ReleasedFile]):
    """The releases of a run by name, `psg-eps1-seed0/stage-1`.

    A job's name stands for its last stage, and a method's name for its only job."""

    def __init__(self, run: Path, data: Mapping[str, Any]) -> None:
        files = (run / RELEASES).glob("*/*.npz")
        self._files = {f"{f.parent.name}/{f.stem}": f for f in sorted(files, key=_order)}
        self._data = data

    def __getitem__(self, name: str) -> ReleasedFile:
        if name in self._files:
            return ReleasedFile(self._files[name], self._data)
        jobs: dict[str, list[str]] = {}
        for key in self._files:
            jobs.setdefault(key.partition("/")[0], []).append(key)
        found = [job for job in jobs if job == name or job.startswith(f"{name}-eps")]
        if len(found) > 1:
            raise UnknownRelease(f"{name!r} has several releases: {', '.join(found)}. Name one.")
        if not found:
            methods = [job.partition("-eps")[0] for job in jobs]
            near = nearest(name, [*self._files, *jobs, *methods])
            raise UnknownRelease(
                f"there is no release {name!r}.{near} "
                f"Allowed: {', '.join(self._files) or 'none, as nothing was released'}."
            )
        return ReleasedFile(self._files[jobs[found[0]][-1]], self._data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<releases {', '.join(self._files)}>"


def _order(file: Path) -> tuple[str, int]:
    return file.parent.name, int(file.stem.rpartition("-")[2])

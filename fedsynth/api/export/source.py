"""A release with its checked certificate: the source of an exported folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.core.types import Column, DatasetInfo
from fedsynth.data.tables import decode_column, table_info
from fedsynth.privacy import certificate as certificates
from fedsynth.privacy.certificate.canonical import read_number
from fedsynth.storage.releases import unarchive

LABEL = "label"  # the column of the classes


@dataclass(frozen=True)
class Source:
    """A release whose certificate holds.

    Attributes:
        path: The archive (`.npz`).
        outcome: Its content.
        verdict: Its checked certificate.
    """

    path: Path
    outcome: Outcome
    verdict: certificates.Verdict

    @classmethod
    def read(cls, path: Path) -> Source:
        """The release in an archive.

        Raises:
            CertificateDamaged: The certificate or the release was changed.
            UserError: There is no certificate, or the release holds unchanged records.
        """
        verdict = certificates.read(path)
        if verdict.body["schema"]["raw_records"]:
            raise UserError(
                f"{path} holds unchanged private records, which a reference without privacy "
                "reads: they are not exported."
            )
        return cls(path, unarchive(path), verdict)

    @property
    def data(self) -> Mapping[str, Any]:
        """The public facts of the data set, as the certificate states them."""
        facts: Mapping[str, Any] = self.verdict.body["schema"]["data"]
        return facts

    @property
    def kind(self) -> str:
        """`model`, `table` or `image`."""
        return "model" if isinstance(self.outcome, ReleasedModel) else str(self.data["kind"])

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a table; empty for images."""
        return columns_of(self.verdict.body)

    @property
    def class_names(self) -> list[str]:
        """The classes in the order of their labels: their names, or their numbers."""
        return list(self.data.get("class_names") or map(str, range(self.data["classes"])))

    @property
    def without_privacy(self) -> bool:
        """True if no privacy is claimed, or none holds towards any observer."""
        rows = self.verdict.body["derived"]["guarantee"]
        values = [read_number(row["epsilon_" + row["relation"]]) for row in rows]
        return not self.verdict.body["method"]["private"] or all(map(math.isinf, values))

    @property
    def info(self) -> DatasetInfo:
        """The public facts of a table, as the writer of its rows needs them."""
        name, classes = self.data["name"], self.data["classes"]
        return table_info(name, self.columns, classes, class_names=self.class_names)

    def records(self) -> SyntheticSet:
        """The released set.

        Raises:
            UserError: A model was released.
        """
        if isinstance(self.outcome, ReleasedModel):
            raise UserError(f"{self.path} holds a model and no records.")
        return self.outcome

    def frame(self) -> pd.DataFrame:
        """One row per record: a table's decoded columns, or the pixels; then the class's name."""
        released = self.records()
        if self.kind == DataKind.TABLE:
            frame = decoded(self.columns, released.images)
        else:
            rows = np.asarray(released.pixels()).reshape(len(released.labels), -1)
            frame = pd.DataFrame(rows, columns=[f"pixel_{i}" for i in range(rows.shape[1])])
        if LABEL in frame:
            raise UserError(
                f"the table has a column {LABEL!r} of its own, which is the name of the column of "
                "classes: rename it in the schema, or export it with --as torch."
            )
        names = self.class_names
        classes = pd.Categorical.from_codes(np.asarray(released.labels), categories=names)
        return frame.assign(**{LABEL: classes})


def columns_of(body: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of a table, as a certificate states them; empty for images."""
    data = body["schema"]["data"]
    if data["kind"] != DataKind.TABLE:
        return ()
    return tuple(
        Column(**{**column, "categories": tuple(column.get("categories", ()))})
        for column in data["columns"]
    )


def decoded(columns: tuple[Column, ...], rows: torch.Tensor) -> pd.DataFrame:
    """Encoded rows [n, columns, 1, 1] as a table of the columns' own values."""
    frame = pd.DataFrame()
    for index, column in enumerate(columns):
        texts = decode_column(column, rows[:, index].flatten())
        if column.categories:
            frame[column.name] = pd.Categorical(texts, categories=list(column.categories))
        else:
            frame[column.name] = np.array(texts, dtype=np.float64).astype(
                np.int64 if column.whole else np.float64
            )
    return frame

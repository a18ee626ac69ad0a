"""A run on disk as an object: numbers, releases, report and ledger."""

from __future__ import annotations

import functools
import html
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.api.released import Releases
from fedsynth.core.errors import UserError
from fedsynth.core.text import epsilon_text
from fedsynth.privacy.ledger_entry import Entry, read_chains
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.run_directory import LEDGER, REPORT, RunDirectory

DATA_KEYS = ("data", "resize", "grey", "data_dir")


class RunResult:
    """A run directory, read when it is asked.

    Args:
        path: The run directory; the run may be unfinished.

    Raises:
        UserError: There is no run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._run = RunDirectory.read(self.path)

    @property
    def finished(self) -> bool:
        """True if the run is complete."""
        return self._run.finished

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Every setting of the run after presets and overrides."""
        return self._run.read_config()

    @property
    def metrics(self) -> pd.DataFrame:
        """All numbers so far, one per row, with what their epsilon means."""
        return frame(self._run.metrics())

    @property
    def releases(self) -> Releases:
        """The released files by name; `run.releases["psg"]` is the last one of an only job."""
        data = {k: v for k in DATA_KEYS if (v := self.config.get(k)) is not None}
        return Releases(self.path, data)

    @property
    def report(self) -> Path:
        """The page with the results.

        Raises:
            UserError: The run is not finished.
        """
        return self._complete(REPORT)

    @property
    def ledger(self) -> list[Entry]:
        """The verified ledger entries of all parties: each event before its noise was drawn.

        Raises:
            UserError: The run is not finished, or the ledger is damaged.
        """
        chains = read_chains(self._complete(LEDGER))
        return [entry for chain in chains for entry in chain]

    def _complete(self, name: str) -> Path:
        path = self.path / name
        if not path.is_file():
            raise UserError(
                f"{self.path} has no {name}: the run is not finished. Go on with "
                f"fedsynth.resume({str(self.path)!r}); a Synthesizer writes no report."
            )
        return path

    def __repr__(self) -> str:
        state = "finished" if self.finished else "unfinished"
        return f"<{state} run {self.path}: {', '.join(self.config.get('method') or ())}>"

    def _repr_html_(self) -> str:
        rows = []
        for row in summarise(self.metrics):
            last = row.accuracy[max(row.accuracy)] if row.accuracy else ""
            cells = (row.method, epsilon_text(row.epsilon), str(last), row.meaning)
            rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
        names = ("method", "ε", "accuracy after the last stage", "meaning of ε")
        head = "".join(f"<th>{name}</th>" for name in names)
        return (
            f"<p><b>{html.escape(str(self.path))}</b>{'' if self.finished else ' (unfinished)'}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

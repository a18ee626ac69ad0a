"""`Synthesizer`: one data holder releases once, with the manners of scikit-learn."""

from __future__ import annotations

import inspect
import re
import shutil
import tempfile
import warnings as python_warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.api.keys import path_of
from fedsynth.api.launch import one_thread
from fedsynth.api.records import Schema, own_records
from fedsynth.api.released import ReleasedFile, decoded
from fedsynth.core.enums import Preset
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import registry as datasets
from fedsynth.data.formats.npz import PREFIX
from fedsynth.experiment.affordability import check_affordable
from fedsynth.experiment.client_session import forget_parties
from fedsynth.experiment.config import ExperimentConfig, assemble
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.job_metrics import keyed, privacy_metrics
from fedsynth.experiment.party_extracts import destroy_keys
from fedsynth.experiment.run_ledger import merged_ledger
from fedsynth.experiment.scenario import forget_records
from fedsynth.experiment.simulated_parties import run_job
from fedsynth.experiment.warnings import warnings
from fedsynth.methods.registry import all_methods, method
from fedsynth.storage.lock import in_use
from fedsynth.storage.run_directory import LEDGER, RunDirectory


class NotFittedError(UserError, ValueError):
    """`fit` was not called yet."""


class Synthesizer:
    """Private synthetic records of one data holder.

    `fit` runs a scenario with one party in this process: the party's guard, ledger, policy and
    certificate are those of any run. Every `fit` spends the whole budget anew, in a ledger of its
    own: fitting the same records twice costs both budgets.

    Assumption: the number of records per class is public, as are shapes, ranges and categories;
    without `classes=` also the set of labels that occur.

    Args:
        method: A private method that releases records.
        epsilon: The budget; one record is the unit.
        delta: Delta of the budget.
        relation: Neighbouring data sets: `add_remove` or `replace_one`.
        accounting: The accounting that noise is calibrated to.
        preset: The amount of computation: `smoke`, `laptop` or `paper`.
        settings: Settings of the method: `{"spc": 5}`.
        schema: Of a table: ranges and categories of its columns, stated and not taken from data.
        classes: The labels that there can be; default: those that occur.
        name: The public name of the data, in ledger and certificate.
        folder: The folder of the run; default: a temporary one that lasts as long as the object.
        seed: Public seed: networks, first images.
        noise_seed: Makes the noise reproducible: for an experiment, never for a release.

    Attributes:
        release_: The release, with its certificate.
        epsilon_: The epsilon that was spent, by the party's ledger (PLD, the stated relation).
        classes_: The labels, in the order of their indices in the release.
        folder_: The folder of the run.
    """

    def __init__(
        self,
        method: str = "sketch_teach",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        relation: str = "add_remove",
        accounting: str = "pld",
        preset: str = "laptop",
        settings: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        classes: Sequence[Any] | None = None,
        name: str = "records",
        folder: str | Path | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.relation = relation
        self.accounting = accounting
        self.preset = preset
        self.settings = settings
        self.schema = schema
        self.classes = classes
        self.name = name
        self.folder = folder
        self.seed = seed
        self.noise_seed = noise_seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor, by name."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Synthesizer:
        """Set parameters of the constructor; returns the object.

        Raises:
            UserError: A parameter is unknown; none is set then.
        """
        for name in params:
            if name not in _PARAMETERS:
                raise unknown("parameter", name, _PARAMETERS)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any = None) -> Synthesizer:
        """Release once from these records.

        Args:
            X: Images, a table, or a torch data set; see `api.records.own_records`.
            y: Labels, or the name of their column in a data frame.

        Returns:
            The object itself.

        Raises:
            UserError: A parameter or the data cannot be used; nothing is spent then.
        """
        self._check()
        records = own_records(X, y, self.schema, self.classes)
        folder = self._new_folder()
        place = f"{PREFIX}{folder / self.name}.npz"  # no such file: the records stay in memory
        datasets.register_in_memory(place, records.data_set(self.name))
        try:
            job = _released(self._config(place, folder), folder)
        finally:
            datasets.unregister(place)
            forget_parties()
            forget_records()
        self._columns = records.columns
        self.folder_ = folder
        self.classes_ = records.classes
        self.epsilon_ = privacy_metrics(job, 0)["epsilon_pld"]
        self.release_ = ReleasedFile(RunDirectory(folder).releases.files(job.name, 1)[0])
        return self

    def sample(
        self, n: int | None = None, *, replace: bool = False, random_state: int | None = None
    ) -> tuple[np.ndarray | pd.DataFrame, np.ndarray]:
        """Draw released records: post-processing, which costs nothing.

        Args:
            n: Their number; default: all of the release, in its order.
            replace: Draw with replacement, so that `n` may exceed the release.
            random_state: Seed of the choice.

        Returns:
            Images float32 [n, c, h, w] in [0, 1], or a data frame of the columns; and the labels.

        Raises:
            UserError: `fit` was not called, the release is a model, or has fewer records.
        """
        release = self._fitted()
        size = len(release.labels)
        chosen = np.arange(size)
        if n is not None:
            if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
                raise UserError(f"n={n!r} must be a whole number >= 0.")
            if n > size and not replace:
                raise UserError(
                    f"n={n}: the release holds {size} records. Allowed: up to {size}, or "
                    "replace=True; settings of the method decide the size of a release."
                )
            chosen = np.random.default_rng(random_state).choice(size, n, replace=replace)
        outcome = release.outcome
        assert isinstance(outcome, SyntheticSet)  # `labels` has refused models
        labels = self.classes_[release.labels[chosen]]
        if self._columns:
            return decoded(self._columns, outcome.images[chosen]), labels
        return release.images[chosen].clip(0, 1), labels

    def save(self, path: str | Path) -> Path:
        """Copy the release with its certificate into a new folder.

        Args:
            path: The folder; it must not exist.

        Returns:
            The path of the released file in it, for `fedsynth.load` and `fedsynth verify`.

        Raises:
            UserError: `fit` was not called, or the folder exists or cannot be written.
        """
        source = self._fitted().path
        target = path_of(path, "path")
        if target.exists() or target.suffix == ".npz":
            raise UserError(
                f"path={str(path)!r} must be a new folder: a release is several files, data and "
                "certificate."
            )
        try:
            shutil.copytree(source.parent, target)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise UserError(f"path={str(path)!r} cannot be written: {error.strerror}.") from error
        return target / source.name

    def _fitted(self) -> ReleasedFile:
        release = getattr(self, "release_", None)
        if release is None:
            raise NotFittedError("this Synthesizer has released nothing yet: call fit(X, y) first.")
        assert isinstance(release, ReleasedFile)
        return release

    def _check(self) -> None:
        """Refuse what would be found too late, or be no release."""
        if self.preset not in tuple(Preset):
            raise unknown("preset", self.preset, Preset)
        if not isinstance(self.method, str) or not method(self.method).private:
            private = [name for name, some in all_methods().items() if some.private]
            raise UserError(
                f"method={self.method!r} is not a private method. Allowed: {', '.join(private)}."
            )
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", self.name):
            raise UserError(f"name={self.name!r} must be of letters, digits, _ and -.")
        if not isinstance(self.settings or {}, Mapping):
            raise UserError(f"settings={self.settings!r} must be a mapping of keys to values.")

    def _new_folder(self) -> Path:
        """The folder that the caller names, or a temporary one that this object removes."""
        if self.folder is None:
            folder = Path(tempfile.mkdtemp(prefix="fedsynth-")).resolve()
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            return folder
        folder = path_of(self.folder, "folder").resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"folder={str(self.folder)!r} is not empty: every fit is a release of its own and "
                "needs a new folder."
            )
        return folder

    def _config(self, place: str, folder: Path) -> ExperimentConfig:
        values = {
            "data": place,
            "partition": "single",
            "parties": 1,
            "stages": "together",
            "method": self.method,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
            "accounting": self.accounting,
            "seed": self.seed,
            "noise_seed": self.noise_seed,
            "preset": self.preset,
            "engine": "inprocess",
            "out": str(folder),
            "evaluation": {"classifier": "mlp"},  # none is trained; fits images and tables
            self.method: dict(self.settings or {}),
        }
        return assemble([values], self.preset, "One party releases once from its own records")

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.get_params().items() if v != _PARAMETERS[k].default}
        words = [repr(self.method), *(f"{k}={v!r}" for k, v in changed.items() if k != "method")]
        return f"Synthesizer({', '.join(words)})"

    def _repr_html_(self) -> str:
        from html import escape

        release = getattr(self, "release_", None)
        return f"<p><code>{escape(repr(self))}</code></p>" + (
            release._repr_html_() if release else "<p>not fitted</p>"
        )


_PARAMETERS = {
    name: parameter
    for name, parameter in inspect.signature(Synthesizer.__init__).parameters.items()
    if name != "self"
}


def _released(config: ExperimentConfig, folder: Path) -> Job:
    """Run the one job of a configuration, without an evaluation."""
    if len(config.run.epsilon) != 1 or len(config.run.method) != 1 or len(config.run.seed) != 1:
        raise UserError("a Synthesizer has one method, one epsilon and one seed.")
    experiment = Experiment.of(config, folder)
    check_affordable(experiment)
    (job,) = experiment.jobs
    for text in warnings(experiment):
        python_warnings.warn(text, UserWarning, stacklevel=3)
    run = RunDirectory.create(folder)
    with in_use(folder):
        run.write_config(config.as_dict())
        run.write_environment(["Synthesizer"])
        with one_thread(), open_job_engine("inprocess") as engine:
            run_job(
                engine, job, sticky=job.method_impl.keeps_state, on_stage=lambda _stage, _set: None
            )
        run.add_metrics(keyed(job, 0, privacy_metrics(job, 0)))
        run.write_text(LEDGER, merged_ledger([job]))
        run.compact_metrics()
        destroy_keys(job)
    return job

"""The stage extension that compares released tables with test records; every table has it."""

from __future__ import annotations

from concurrent.futures import Future

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.engine.base import Engine
from fedsynth.evaluation.table_quality import table_columns, table_quality
from fedsynth.experiment.evaluate import released_so_far, releases_for_workers
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import scenario_stages, test_records
from fedsynth.experiment.scenario_config import dataset_info


class TableComparison:
    """The stage extension `table_comparison`."""

    name = "table_comparison"

    def applies(self, job: Job) -> bool:
        """True if the data are a table."""
        return dataset_info(job.scenario).kind == DataKind.TABLE

    def metrics(self, engine: Engine, job: Job, stage: int) -> dict[str, float]:
        """Column shapes and pair trends of all rows released so far; none for a released model."""
        released = releases_for_workers(engine, job, stage)
        compared: Future[dict[str, float]] = engine.submit(
            compare_tables, job.text(), stage, *released
        )
        return compared.result()


def compare_tables(
    job_text: str, stage: int, released: SyntheticSet | ReleasedModel | None = None
) -> dict[str, float]:
    """Compare the rows released up to a stage with the test records of the classes seen.

    Runs in a worker, like the training of classifiers; `released` is read from the run directory
    if it is not given."""
    job = Job.parse(job_text)
    this_stage = scenario_stages(job.scenario)[stage]
    released = released or released_so_far(job, stage)
    if isinstance(released, ReleasedModel):
        return {}
    test = test_records(job.scenario)
    among = torch.isin(test.labels, torch.tensor(this_stage.seen))
    real = table_columns(this_stage.data, test.images[among], test.labels[among])
    ours = table_columns(this_stage.data, released.pixels(), released.labels)
    return table_quality(real, ours).rows()


EXTENSION = TableComparison()

"""Epsilons that depend on teachers' votes, beside those that do not. An illustration, no guarantee.

    python benchmarks/data_dependent_bound.py [--method g_pate] [--data shapes] [--epsilon 10]

trains a few hundred teachers for some rounds, as `g_pate` or `datalens` does, and counts the same
rounds twice: whatever the votes are, which is what fedsynth charges, and by the data-dependent
bound for an arg-max under Gaussian noise (GNMax; Papernot et al. 2018, proposition 7 and theorem
6), as the two publications do.

PRIVATE: a value that is computed from votes depends on the records like the votes themselves. It
bounds what one record changes at these votes and not at those of neighbouring data, and to print it
is a release that nothing paid for. So it is computed here, from data sets that are public anyway
and with noise of an ordinary generator; no method, report or ledger can compute it.

Of the two programs, that of G-PATE applies the bound to what it is for, the arg-max of a histogram.
It prints the value, unprotected, and counts an arg-max where the fullest bin passed its test only.
That of DataLens has three errors more:

* The bound is for one arg-max. DataLens releases a thresholded vector of all pixels, in which a
  pixel near the threshold tells what the arg-max does not.
* It is computed from the votes after noise was added to them, of which proposition 7 says nothing.
* The smaller value counts, of this one and of that which holds for any votes. With hundreds of
  pixels the former does not apply, so that nothing is gained: the published numbers are right by
  luck and not by proof.

For a whole vector the theorem needs the probability of any other vector, which is close to 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.data.registry import find
from fedsynth.data.registry import load as load_data
from fedsynth.methods.pate.datalens.compression import compress_votes, voted_direction
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import DataLensParameters
from fedsynth.methods.pate.datalens.teachers import Compression, Query, TeacherEnsemble
from fedsynth.methods.pate.g_pate.config import GPateConfig, GPateParameters
from fedsynth.methods.pate.g_pate.g_pate import bin_votes, confident_values, projection
from fedsynth.methods.pate.record_assignment import RecordAssignment
from fedsynth.privacy.accounting.accountant import epsilon

PRIVATE = "PRIVATE: depends on the votes, not a guarantee"
ORDERS = np.array([1.1, *range(2, 200)])  # of the publications
DELTA, KEY, CPU = 1e-5, ("data-dependent bound",), torch.device("cpu")
SMALL = {"channels": 8, "hidden": 64, "generator_hidden": 256, "generator_channels": 32}


# ---- the bound ----


def log_of_other_outcomes(counts: np.ndarray, sigma: float) -> float:
    """Proposition 7: the log of a bound on the probability that noise makes another count the
    largest."""
    largest = int(counts.argmax())
    gaps = counts[largest] - np.delete(counts, largest)
    return min(float(np.logaddexp.reduce(norm.logsf(gaps / (math.sqrt(2) * sigma)))),
               math.log1p(-1 / len(counts)))  # fmt: skip


def data_dependent_rdp(log_q: float, per_order: float, orders: np.ndarray = ORDERS) -> np.ndarray:
    """Theorem 6, with the orders of proposition 10: a bound on the Renyi divergence at these data.

    Args:
        log_q: The log of a bound on the probability of any but the likeliest outcome.
        per_order: The divergence of order a is at most `per_order * a`, whatever the data.
        orders: The orders a.

    Returns:
        The smaller one of the two bounds at each order.
    """
    independent = per_order * orders
    if log_q == -math.inf:
        return 0.0 * orders
    second = math.sqrt(-log_q / per_order)
    if second <= 1 or log_q + per_order * second >= 0:
        return independent
    first = second + 1
    peak = per_order * second * (second - 1) - second * (
        math.log1p(1 / second) - math.log1p(-1 / second)
    )
    if log_q > peak:
        return independent
    log_1q = _log_of_rest(log_q)
    likeliest = log_1q - _log_of_rest((log_q + per_order * second) * (1 - 1 / second))
    others = per_order * first - log_q / (first - 1)
    total = np.logaddexp(log_1q + (orders - 1) * likeliest, log_q + (orders - 1) * others)
    bound = np.minimum(independent, total / (orders - 1))
    return np.where(orders < first, bound, independent)


def _log_of_rest(log_q: float) -> float:
    """log(1 - q)."""
    return math.log1p(-math.exp(log_q)) if log_q < -1 else math.log(-math.expm1(log_q))


def classic_epsilon(rdp: np.ndarray) -> float:
    """The smallest epsilon over the orders by the conversion of the publications."""
    return float((rdp + math.log(1 / DELTA) / (ORDERS - 1)).min())


# ---- what is counted in a round ----


def confident_rdp(
    counts: np.ndarray, sigma: float, threshold: float, sigma1: float, *, passed_only: bool = False
) -> np.ndarray:
    """G-PATE: the test of the fullest bin, and the arg-max.

    With `passed_only`, the arg-max counts as often as the test is expected to be passed, which is
    close to what the program does: it counts those that were."""
    passed = float(norm.logsf((threshold - counts.max()) / sigma1))
    missed = float(norm.logcdf((threshold - counts.max()) / sigma1))
    test = data_dependent_rdp(min(passed, missed), 1 / (2 * sigma1**2))
    answer = data_dependent_rdp(log_of_other_outcomes(counts, sigma), 1 / sigma**2)
    return test + answer * (math.exp(passed) if passed_only else 1)


def log_of_other_vectors(votes: np.ndarray, sigma: float, threshold: float) -> float:
    """DataLens: the log of the probability of any but the likeliest vector of -1, 0 and 1."""
    up, down = norm.logsf((threshold - votes) / sigma), norm.logcdf((-threshold - votes) / sigma)
    between = norm.logcdf(threshold, votes, sigma) + np.log1p(
        -np.exp(np.minimum(down - norm.logcdf(threshold, votes, sigma), -1e-300))
    )
    likeliest = float(np.maximum(np.maximum(up, down), between).sum())
    return _log_of_rest(likeliest) if likeliest < 0 else -math.inf


def program_rdp(noised: np.ndarray, sigma: float, entries: int) -> np.ndarray:
    """DataLens's program, with its errors: the bound of an arg-max, from noised votes."""
    return data_dependent_rdp(log_of_other_outcomes(noised, sigma), 2 * entries / sigma**2)


# ---- small runs ----


def stage_of(name: str, teachers: int) -> tuple[Stage, Records]:
    """One party with 15 records per teacher of a public data set, and these records."""
    images, labels = load_data(name, "train")
    records = Records(images[: 15 * teachers], labels[: 15 * teachers])
    held = torch.bincount(records.labels).tolist()
    info, classes = find(name).info, tuple(range(len(held)))
    party = PartyInfo(0, len(records.labels), dict(enumerate(held)))
    return Stage(info, 0, 1, (party,), classes, classes), records


def ensemble_of(
    cfg: DataLensConfig | GPateConfig,
    parameters: DataLensParameters | GPateParameters,
    stage: Stage,
    records: Records,
    compression: Compression,
) -> TeacherEnsemble:
    """Fresh teachers of all records."""
    ensemble = TeacherEnsemble(
        records,
        RecordAssignment.of(records, sum(parameters.teachers.values()), repr(KEY)),
        cfg=cfg,
        parameters=parameters,
        compression=compression,
        stage=stage,
        key=KEY,
        dtype=torch.float32,
        device=CPU,
    )
    ensemble.initialise()
    ensemble.threads = 1
    return ensemble


def vote_sums(ensemble: TeacherEnsemble, student: StudentGenerator, number: int) -> Tensor:
    """The vote sums of one round before noise, [images, width]."""
    arrays = student.query(number, 0).arrays
    counts = ensemble.run_round(Query.of(number, arrays, torch.empty(0)))
    assert counts is not None
    return counts.sums.double()


def noisy(values: Tensor, sigma: float, *key: object) -> Tensor:
    """Values with noise of an ordinary generator, which protects nothing."""
    generator = torch_generator(*KEY, *key)
    return values + sigma * torch.randn(values.shape, generator=generator, dtype=torch.float64)


def g_pate_rounds(
    cfg: GPateConfig, parameters: GPateParameters, stage: Stage, records: Records
) -> Iterator[dict[str, np.ndarray]]:
    """Per round, the sums of the data-dependent divergences of all its histograms."""
    noise, teachers = parameters.noise, sum(parameters.teachers.values())

    def directions(number: int) -> Tensor:
        return projection(parameters.width, cfg.projections, *KEY, number)

    def compression(gradients: Tensor, number: int, _first: int) -> Tensor:
        return bin_votes(gradients @ directions(number).to(gradients), cfg)

    ensemble = ensemble_of(cfg, parameters, stage, records, compression)
    student = StudentGenerator(cfg, parameters, stage, KEY, CPU)
    terms = noise.noise, cfg.threshold * teachers, noise.threshold_noise
    for number in range(parameters.rounds):
        sums = vote_sums(ensemble, student, number)
        bins = sums.unflatten(1, (cfg.projections, cfg.bins))
        histograms = bins.flatten(0, 1).numpy()
        yield {
            "by the votes": sum(confident_rdp(h, *terms) for h in histograms),
            "by the votes, as G-PATE counts": sum(
                confident_rdp(h, *terms, passed_only=True) for h in histograms
            ),
            "the same after one teacher has changed its votes": sum(
                confident_rdp(one_moved(h), *terms, passed_only=True) for h in histograms
            ),
        }
        counts = noisy(sums, noise.noise, number, "counts")
        maxima = noisy(bins.amax(2), noise.threshold_noise, number, "maxima")
        values = confident_values(counts, maxima, teachers, cfg)
        student.learn(number, values.float() @ directions(number).t())


def one_moved(counts: np.ndarray) -> np.ndarray:
    """Neighbouring counts: a vote for the largest is one for the next."""
    moved, order = counts.copy(), counts.argsort()
    moved[order[-1]] -= 1
    moved[order[-2]] += 1
    return moved


def datalens_rounds(
    cfg: DataLensConfig, parameters: DataLensParameters, stage: Stage, records: Records
) -> Iterator[dict[str, np.ndarray]]:
    """Per round, the sums of the data-dependent divergences of all its images."""
    sigma, entries, teachers = (
        parameters.sigma,
        parameters.entries,
        sum(parameters.teachers.values()),
    )

    def compression(gradients: Tensor, number: int, first: int) -> Tensor:
        generator = torch_generator(*KEY, "votes", number, first)
        return compress_votes(cfg, parameters, gradients, generator)

    ensemble = ensemble_of(cfg, parameters, stage, records, compression)
    student = StudentGenerator(cfg, parameters, stage, KEY, CPU)
    per_order, needed = 2 * entries / sigma**2, parameters.beta * teachers
    for number in range(parameters.rounds):
        sums = vote_sums(ensemble, student, number)
        noised = noisy(sums, sigma, number, "votes")
        yield {
            "by the votes, for whole vectors": sum(
                data_dependent_rdp(log_of_other_vectors(v, sigma, needed), per_order)
                for v in sums.numpy()
            ),
            "as DataLens's program computes it": sum(
                program_rdp(v, sigma, entries) for v in noised.numpy()
            ),
        }
        student.learn(number, voted_direction(cfg, parameters, noised.float(), teachers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", choices=("g_pate", "datalens"), default="g_pate")
    parser.add_argument("--data", choices=("shapes", "mnist"), default="shapes")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--teachers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    stage, records = stage_of(args.data, args.teachers)
    budget = Budget(args.epsilon, DELTA)
    sizes = {"teachers": args.teachers, "rounds": args.rounds, **SMALL}
    if args.method == "g_pate":
        cfg = GPateConfig(**sizes)
        parameters = GPateParameters.of(cfg, stage, budget)
        found = g_pate_rounds(cfg, parameters, stage, records)
    else:
        cfg = DataLensConfig(**sizes, batch=15)
        parameters = DataLensParameters.of(cfg, stage, budget)
        found = datalens_rounds(cfg, parameters, stage, records)
    totals: dict[str, np.ndarray] = {}
    for one_round in found:
        for name, rdp in one_round.items():
            totals[name] = totals.get(name, 0.0) + rdp
    event = parameters.event
    classic = epsilon(event, DELTA, "rdp_classic_199")
    print(f"{args.method}, {args.data}, {sum(parameters.teachers.values())} teachers, "
          f"{parameters.rounds} rounds of {parameters.images} images, delta={DELTA:g}, "
          "unit record, relation add_remove")  # fmt: skip
    print(f"whatever the votes: epsilon {epsilon(event, DELTA):.4f} by privacy loss distributions")
    print(f"whatever the votes: epsilon {classic:.4f} by the conversion of the next lines")
    for name, rdp in totals.items():
        print(f"{name}: {classic_epsilon(rdp):.4f}  [{PRIVATE}]")


if __name__ == "__main__":
    main()

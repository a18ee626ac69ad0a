"""MST of the package dpmm beside ours, on Adult at epsilon 1: boosted trees on what was released.

    python benchmarks/tables_peer.py judge RUN ...    releases of runs with data=adult
    python benchmarks/tables_peer.py codes FILE.npz   Adult as codes with 32 bins, and the real rows
    PYTHON benchmarks/tables_peer.py dpmm FILE.npz    with a Python that has dpmm, and not fedsynth

Prints the accuracy on the test set of scikit-learn's HistGradientBoostingClassifier with seed 0.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

BINS, EPSILON, DELTA, SEED = 32, 1.0, 1e-5, 0


def accuracy(rows: Any, labels: Any, test_rows: Any, test_labels: Any) -> float:
    """The accuracy of boosted trees that were trained on these rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    judge = HistGradientBoostingClassifier(random_state=SEED).fit(rows, labels)
    return float((judge.predict(test_rows) == test_labels).mean())


def adult(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The encoded rows of Adult, [n, columns], and their labels."""
    from fedsynth.data import registry

    images, labels = registry.load("adult", split, None)
    return images.flatten(1).numpy(), labels.numpy()


def judge_runs(runs: list[str]) -> None:
    """The releases of runs, by the encoded rows."""
    import fedsynth

    test = adult("test")
    print(f"real rows: {accuracy(*adult('train'), *test):.3f}")
    for run in runs:
        for name, release in fedsynth.load(run).releases.items():
            rows = release.images.reshape(len(release.labels), -1)
            print(f"{run} {name}: {accuracy(rows, release.labels, *test):.3f}", flush=True)


def write_codes(file: str) -> None:
    """Adult as whole numbers, the label last, for a program without fedsynth."""
    import torch

    from fedsynth.data import registry
    from fedsynth.methods.marginals.domain import fine_codes

    coders = fine_codes(registry.find("adult").info, BINS)
    parts = {}
    for split in ("train", "test"):
        rows, labels = adult(split)
        columns = [c.encode(torch.from_numpy(rows[:, i])).numpy() for i, c in enumerate(coders)]
        parts[split] = np.stack([*columns, labels], axis=1)
    np.savez(file, sizes=[*(coder.size for coder in coders), 2], **parts)
    train, test = parts["train"], parts["test"]
    print(f"real codes: {accuracy(train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]):.3f}")


def run_dpmm(file: str) -> None:
    """The MST of dpmm on these codes."""
    import pandas as pd
    from dpmm.models.mst import MSTGM

    with np.load(file) as parts:
        train, test, sizes = parts["train"], parts["test"], parts["sizes"].tolist()
    names = [f"column {i}" for i in range(len(sizes))]
    start = time.perf_counter()
    model = MSTGM(epsilon=EPSILON, delta=DELTA, n_jobs=1)
    model.set_random_state(np.random.RandomState(SEED))
    model.set_domain(dict(zip(names, sizes, strict=True)))
    model.fit(pd.DataFrame(train, columns=names))
    rows = model.generate(n_records=len(train))[names].to_numpy()
    seconds = time.perf_counter() - start
    found = accuracy(rows[:, :-1], rows[:, -1], test[:, :-1], test[:, -1])
    print(f"dpmm: {found:.3f}, {seconds:.0f} s to release")


if __name__ == "__main__":
    word, *names = sys.argv[1:]
    {"judge": judge_runs, "codes": lambda n: write_codes(*n), "dpmm": lambda n: run_dpmm(*n)}[word](
        names
    )

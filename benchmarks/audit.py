"""Audits of all mechanisms and all methods at small size, as one table.

    python benchmarks/audit.py FOLDER [NAME ...]

An audit whose JSON file is in FOLDER is not run again. The table is written to FOLDER/README.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fedsynth.cli.audit import main as audit
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.auditing.cases import MECHANISMS

EPSILON = 10
MECHANISM_RUNS, METHOD_RUNS = 6000, 200
SLOW = ("g_pate", "datalens", "gs_wgan", "pate_gan", "dp_sinkhorn", "dp_kernel")
FEWER_RUNS = 40

HEAD = """\
# Audits

Lower bounds on epsilon by attack (`docs/guides/audit.md`), all at epsilon {epsilon}, delta 1e-5,
unit record, relation add_remove, noise_seed 1; both tables by `python benchmarks/audit.py
results/audit` at commit {commit}. Bounds hold with the confidence of their row, and the rows of one
mechanism or method together with 95%.

"Audited" is the bound for events of the charged form, "any" the one by the (epsilon, delta)
definition alone; "reached" is audited over theoretical mu, which exists where no records are
sampled. "Canary" is how far the canary moves the values in deviations of the claimed noise, over
the theoretical mu: what an attack with unlimited runs would reach. Few runs make a bound low: with
200 runs per world at most about 80% of mu can be proven, with 40 about half.

"""

WEAK = """
## Weak attacks

A canary's share far below 100% is a weak audit, not a private method. The sensitivity of methods
that clip whatever teachers or critics of a subset say (datalens, g_pate, pate_gan, gs_wgan) or a
function of the whole sample (dp_kernel, dp_sinkhorn) is a worst case that no record at this size
reaches; dp_hp's bound is that of an image that no real number of features attains. The mechanisms
behind all of them are audited above with canaries that do reach their sensitivity.

Not audited: the unit "user", colluding parties, and accuracy-based selection of settings.
"""


def run(folder: Path, names: list[str]) -> None:
    """Run the audits that are missing."""
    for name in MECHANISMS:
        _audit(folder, "mechanism", name, MECHANISM_RUNS, names)
    private = [name for name, some in all_methods().items() if some.private]
    for name in sorted(private, key=lambda name: name in SLOW):
        _audit(folder, "method", name, FEWER_RUNS if name in SLOW else METHOD_RUNS, names)


def _audit(folder: Path, kind: str, name: str, runs: int, names: list[str]) -> None:
    path = folder / f"{kind}-{name}.json"
    if not path.exists() and (not names or name in names):
        audit(
            [f"{kind}={name}", f"epsilon={EPSILON}", f"runs={runs}", "noise_seed=1", f"out={path}"]
        )


def table(folder: Path, kind: str) -> str:
    """The findings of mechanisms, or of methods."""
    rows = []
    for path in sorted(folder.glob(f"{kind}-*.json")):
        rows += [_row(finding) for finding in json.loads(path.read_text())["findings"]]
    headings = ("audited", "attack", "runs", "claimed", "audited", "theoretical", "any", "reached")
    return markdown_table((*headings, "canary", "confidence", "contradicted"), rows)


def missing(folder: Path) -> str:
    """A sentence on the methods whose audit has not been run; empty if there is none."""
    private = (name for name, some in all_methods().items() if some.private)
    names = [name for name in sorted(private) if not (folder / f"method-{name}.json").exists()]
    return f"\nNot run yet, minutes to an hour each: {', '.join(names)}.\n" if names else ""


def _row(finding: dict[str, Any]) -> list[str]:
    share = "–"
    if finding["theoretical_mu"] and finding["canary_mu"] is not None:
        share = f"{finding['canary_mu'] / finding['theoretical_mu']:.1%}"
    reached = "–" if finding["reached"] is None else f"{finding['reached']:.1%}"
    keys = ("claimed_epsilon", "audited_epsilon", "theoretical_epsilon", "audited_epsilon_any")
    return [
        finding["name"],
        finding["attack"],
        str(finding["runs"]),
        *(epsilon_text(finding[key]) for key in keys),
        reached,
        share,
        f"{finding['confidence']:.2%}",
        "yes" if finding["found"] else "no",
    ]


def main(words: list[str]) -> int:
    """Run the audits and write the table."""
    folder = Path(words[0])
    run(folder, words[1:])
    commit = (folder / "commit").read_text().strip() if (folder / "commit").exists() else "?"
    text = HEAD.format(epsilon=EPSILON, commit=commit)
    text += f"## Mechanisms\n\n{table(folder, 'mechanism')}\n\n## Methods\n\n"
    text += f"{table(folder, 'method')}\n{missing(folder)}{WEAK}"
    (folder / "README.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""SHA-256 of releases, ledgers and metrics of every contract case, with a fixed noise seed.

    python tests/support/release_hashes.py write HASHES.json [REGEX]
    python tests/support/release_hashes.py compare HASHES.json [REGEX]

A change that should not touch any result writes the hashes before and compares afterwards. The
optional regular expression chooses cases by name.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import tiny_runs as tiny
from contract_cases import CASES, NAMES

from fedsynth.engine.process_setup import prepare_worker
from fedsynth.experiment.flower_apps import open_job_engine


def hashes(chosen: str = "") -> dict[str, dict[str, str]]:
    """Per case, the hash of every file that must not depend on engines or the time of day."""
    prepare_worker()
    found: dict[str, dict[str, str]] = {}
    with open_job_engine("inprocess") as engine, tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            if re.search(chosen, str(case)):
                job = case.job(Path(folder) / str(number) / "run")
                tiny.release(job, engine)
                found[str(case)] = _hashed(job.out)
        for name in NAMES:
            if re.search(chosen, f"judged-{name}"):
                out = Path(folder) / name / "run"
                tiny.release_and_judge([tiny.tiny_job(name, out)], engine)
                found[f"judged-{name}"] = _hashed(out)
    return found


def _hashed(out: str | Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(content).hexdigest()
        for name, content in sorted(tiny.outputs(out).items())
    }


def main(action: str, path: str, chosen: str = "") -> int:
    """Write the hashes, or compare with those written before."""
    found = hashes(chosen)
    if action == "write":
        Path(path).write_text(json.dumps(found, indent=0, sort_keys=True))
        return 0
    before = json.loads(Path(path).read_text())
    compared = [(case, file) for case in found for file in {**found[case], **before.get(case, {})}]
    different = [
        f"{case}: {file}"
        for case, file in compared
        if before.get(case, {}).get(file) != found[case].get(file)
    ]
    print(f"{len(found)} cases, {len(compared)} files, {len(different)} different")
    print(*different, sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

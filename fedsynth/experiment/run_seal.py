"""The seal of a run: the hashes of its result files, signed by the server.

The accuracies of a run cannot be computed anew from its files, so that nothing but a signature
shows that one was changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.privacy.certificate.canonical import (
    CertificateDamaged,
    opened,
    read_document,
    rendered,
    sealed,
)
from fedsynth.privacy.party_key import PartyKey
from fedsynth.storage.releases import RELEASES
from fedsynth.storage.run_directory import (
    COMPARISON,
    CONFIG,
    ENVIRONMENT,
    FIGURES,
    LEDGER,
    METRICS,
    REPORT,
    SERVER,
    TIMINGS,
    RunDirectory,
)

SEAL = "seal.json"
_FILES = (CONFIG, ENVIRONMENT, METRICS, TIMINGS, LEDGER, REPORT, COMPARISON)
_FOLDERS = (RELEASES, FIGURES)
FORM = "fedsynth run 1"


def server_key(run: Path, noise_seed: int | None) -> PartyKey:
    """The key with which the server of a run signs what it publishes."""
    return PartyKey.of_owner(run / SERVER, "server", noise_seed)


def seal_run(run: RunDirectory, noise_seed: int | None) -> Path:
    """Sign the result files of a run that is complete."""
    body = {"form": FORM, "files": _hashes(run)}
    return run.write_bytes(SEAL, rendered(sealed(body, server_key(run.path, noise_seed))))


def seal_problems(run: RunDirectory, trusted: Mapping[str, str]) -> list[str]:
    """The files that are not as they were sealed.

    Args:
        run: A finished run.
        trusted: Public keys that the reader knows, with the signer that each belongs to.

    Raises:
        UserError: There is no seal, or it cannot be read.
    """
    path = run.path / SEAL
    if not path.is_file():
        raise UserError(f"{run.path} has no {SEAL}: the run is not finished, or was never sealed.")
    try:
        body, key = opened(read_document(path), SEAL)
        if set(body) != {"form", "files"} or body["form"] != FORM:
            raise CertificateDamaged(f"{SEAL} does not have the fields of a seal.")
    except CertificateDamaged as error:
        return [str(error)]
    said, found = body["files"], _hashes(run)
    problems = [
        f"{name} was changed after the run." for name in said if found.get(name) != said[name]
    ]
    problems += [f"{name} was added after the run." for name in found.keys() - said.keys()]
    if "server" in trusted.values() and trusted.get(key) not in ("", "server"):
        problems.append(f"{SEAL} is signed with {key[:16]}..., which is not the server's key.")
    return problems


def _hashes(run: RunDirectory) -> dict[str, str]:
    names = [name for name in _FILES if (run.path / name).is_file()]
    names += [f"{folder}/{name}" for folder in _FOLDERS for name in _below(run.path / folder)]
    return {name: hashlib.sha256((run.path / name).read_bytes()).hexdigest() for name in names}


def _below(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)

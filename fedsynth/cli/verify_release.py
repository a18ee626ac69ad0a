"""Check releases by their certificates, with nothing but the folder that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.privacy.certificate.check import Verdict, certificate_of, check
from fedsynth.privacy.certificate.words import explanation
from fedsynth.storage.releases import CERTIFICATE_SUFFIX, REGISTRY_SUFFIX

PAYLOAD = ".npz"


def release_verdicts(path: Path, trusted: Mapping[str, str]) -> list[Verdict]:
    """The verdicts on a release, or on every release in a folder and the folders below.

    Raises:
        UserError: There is no release, or one has no certificate.
    """
    return [check(certificate, trusted) for certificate in certificates(path)]


def certificates(path: Path) -> list[Path]:
    """The certificates of a release or of all releases in a folder.

    Raises:
        UserError: There is no release, or one has no certificate, or the reverse.
    """
    if not path.is_dir():
        found = [certificate_of(path)]
    else:
        names = (PAYLOAD, CERTIFICATE_SUFFIX, REGISTRY_SUFFIX)
        files = (file for name in names for file in path.rglob(f"*{name}"))
        found = sorted({certificate_of(file) for file in files})
    for certificate in found:
        if not certificate.is_file():
            raise UserError(
                f"{certificate} is missing: the release beside it has no certificate, so that "
                "nothing is known of its privacy."
            )
    if not found:
        raise UserError(f"{path} holds no release: no file ends in {PAYLOAD}.")
    return found


def show(verdicts: Sequence[Verdict]) -> list[str]:
    """The lines to print for verdicts without problems."""
    lines = []
    for verdict in verdicts:
        first, *rest = explanation(verdict)
        lines += [first, *(f"  {line}" for line in rest)]
    return lines


def refuse(verdicts: Sequence[Verdict]) -> None:
    """Raise the problems of all verdicts as one error.

    Raises:
        UserError: A verdict has a problem.
    """
    problems = [f"{v.path.name}: {problem}" for v in verdicts for problem in v.problems]
    if problems:
        raise UserError("\nerror: ".join(problems))

"""Check releases by their certificates, with nothing but the folder that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsynth.api.export.folder import (
    CARD,
    CERTIFICATE,
    certified_release,
    form_name,
    is_export,
    problems_of_export,
)
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


def exported(path: Path) -> Path | None:
    """The exported folder that a path names, or whose `privacy.json` it is.

    Raises:
        UserError: The folder lacks its certified release.
    """
    folder = path.parent if path.name == CERTIFICATE else path
    if not is_export(folder):
        return None
    certified_release(folder)
    return folder


def export_lines(folder: Path) -> list[str]:
    """The lines on the data of an exported folder whose certificate holds.

    Raises:
        UserError: A file is not that of the certified release.
    """
    problems = problems_of_export(folder)
    if problems:
        raise UserError("\nerror: ".join(problems))
    return [
        f"exported as {form_name(folder)}: the data files hold what the certified release holds, "
        "as far as the form can, and no other file is there.",
        f"not verified: {CARD}, which its holder may complete.",
    ]


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

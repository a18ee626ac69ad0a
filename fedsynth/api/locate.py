"""Releases by the path of a file, a folder, a run or an export."""

from __future__ import annotations

import os
from pathlib import Path

from fedsynth.api.export.folder import certified_release, is_export
from fedsynth.api.released import ReleasedFile, UnknownRelease
from fedsynth.api.run_result import RunResult
from fedsynth.core.errors import UserError, allowed, nearest
from fedsynth.storage.run_directory import CONFIG


def find_release(path: Path) -> ReleasedFile:
    """The release at a path.

    Args:
        path: A released file, a folder with one (of the stages of a job the last one), an exported
            folder, a run with one job, or RUN/NAME for the name of a job or method.

    Raises:
        UserError: There is none, or several.
    """
    if path.is_file():
        return ReleasedFile(path)
    if path.is_dir():
        return _in_folder(path)
    for parent in path.parents:
        if (parent / CONFIG).is_file():
            name = path.relative_to(parent).as_posix().removeprefix("releases/")
            return RunResult(parent).releases[name.removesuffix(".npz")]
    siblings = os.listdir(path.parent) if path.parent.is_dir() else []
    raise UserError(
        f"{path} does not exist: name a released file, a folder of one or a run directory."
        + nearest(path.name, siblings)
    )


def _in_folder(folder: Path) -> ReleasedFile:
    if is_export(folder):
        return ReleasedFile(certified_release(folder))
    if (folder / CONFIG).is_file():
        run = RunResult(folder)
        jobs = {name.partition("/")[0] for name in run.releases}
        if len(jobs) != 1:
            held = "no release" if not jobs else f"releases of {len(jobs)} jobs"
            name = f" Name one: {folder}/NAME. {allowed(sorted(jobs))}" if jobs else ""
            raise UserError(f"{folder} holds {held}.{name}")
        return run.releases[jobs.pop()]
    files = sorted(folder.glob("*-*.npz"), key=_stage)
    kinds = {file.stem.rpartition("-")[0] for file in files}
    if len(kinds) > 1:
        raise UserError(f"{folder} holds several releases. {allowed(f.name for f in files)}")
    if not files:
        raise UnknownRelease(
            f"{folder} is not a run directory: it has no {CONFIG}; and it holds no release: no "
            "stage-N.npz or model-N.npz."
        )
    return ReleasedFile(files[-1])


def _stage(file: Path) -> tuple[int, str]:
    number = file.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0, file.name

"""The environment of a run: versions, machine and command, without personal data.

Host names, user names and absolute paths stay out, because run directories are made to be shared.
"""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

PACKAGES = (
    "fedsynth",
    "torch",
    "torchvision",
    "flwr",
    "ray",
    "opacus",
    "dp-accounting",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "matplotlib",
)


def describe_environment(arguments: Sequence[str]) -> dict[str, Any]:
    """Versions, processor, platform, git commit and command line, as plain values."""
    return {
        "command": command_line(arguments),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cpus(),
        "gpus": gpu_names(),
        "packages": package_versions(),
        "git": git_commit(),
    }


@functools.cache
def package_versions() -> dict[str, str]:
    """The versions of the packages that decide a result, as far as they are installed."""
    return {name: version for name in PACKAGES if (version := package_version(name))}


def package_version(name: str) -> str | None:
    """The version of a package, also where another distribution provides it, as xgboost-cpu does
    xgboost; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        others = metadata.packages_distributions().get(name)
        return metadata.version(others[0]) if others else None


def command_line(arguments: Sequence[str]) -> str:
    """The command that repeats this run, with absolute paths cut to their last name."""
    return shlex.join(["python", "-m", "fedsynth.run", *(_shareable(word) for word in arguments)])


def _shareable(word: str) -> str:
    key, equals, value = word.rpartition("=")
    for flavour in (PurePosixPath, PureWindowsPath):
        path = flavour(value)
        if path.is_absolute() or value.startswith("~"):
            return f"{key}{equals}{path.name or '.'}"
    return word


def processor_name() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """The names of the GPUs that torch can use."""
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def git_commit() -> dict[str, Any] | None:
    """The commit this code was run from and whether it was changed; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]
    # A package installed inside another repository is not tracked by it.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return {"commit": commit, "changed": bool(changed)} if commit else None


def _git(where: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=where, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpus() -> int:
    return os.cpu_count() or 1

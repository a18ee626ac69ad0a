"""The page as PDF, printed by a browser that is installed: Chromium, Chrome or Edge."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.storage.files import write_file

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
TIMEOUT = 120.0  # seconds


def browser() -> str:
    """The first of the known browsers that is installed.

    Raises:
        UserError: There is none.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise UserError(
            "--format pdf needs a browser that prints the page, and none of Chromium, Chrome and "
            "Edge was found. Install one (Debian and Ubuntu: apt install chromium), or take "
            "--format html and print the page from any browser."
        )
    return found


def print_page(page: Path, target: Path) -> Path:
    """Print a page into a PDF file.

    Args:
        page: An HTML file.
        target: The PDF file, which is complete or absent.

    Returns:
        The PDF file.

    Raises:
        UserError: There is no browser, or it could not print the page.
    """
    program = browser()
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "page.pdf"
        words = [
            program,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={folder}/profile",
            "--no-pdf-header-footer",
            f"--print-to-pdf={printed}",
            page.resolve().as_uri(),
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            words.insert(1, "--no-sandbox")  # its sandbox refuses the user root
        try:
            done = subprocess.run(words, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"{program} did not print {page}: {error}") from error
        if done.returncode or not printed.is_file():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise UserError(f"{program} did not print {page}: {' '.join(last)}")
        return write_file(target, printed.read_bytes())

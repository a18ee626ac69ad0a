"""A page is printed by a browser that is installed; without one, the message says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_data import put_program

from fedsynth.core.errors import UserError
from fedsynth.report import pdf
from fedsynth.report.pdf import browser, print_page

PRINTS = """for word in "$@"; do
  case "$word" in --print-to-pdf=*) echo "%PDF $*" > "${word#--print-to-pdf=}" ;; esac
done"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are found."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(pdf, "BROWSERS", ("chromium", "google-chrome"))
    return tmp_path / "bin"


def test_the_page_is_printed_without_header_and_footer(programs: Path, tmp_path: Path) -> None:
    put_program(programs, "google-chrome", PRINTS)
    page = tmp_path / "a page.html"
    page.write_text("x")
    target = print_page(page, tmp_path / "out" / "page.pdf")
    words = target.read_text()
    assert words.startswith("%PDF")
    assert "--headless" in words
    assert "--no-pdf-header-footer" in words
    assert words.rstrip().endswith(page.as_uri())


def test_without_a_browser_the_message_names_some(programs: Path) -> None:
    with pytest.raises(UserError, match="apt install chromium"):
        browser()


@pytest.mark.parametrize("script", ["echo no display >&2; exit 3", "exit 0"])
def test_a_browser_that_prints_nothing_leaves_nothing(
    programs: Path, tmp_path: Path, script: str
) -> None:
    put_program(programs, "chromium", script)
    with pytest.raises(UserError, match="did not print"):
        print_page(tmp_path / "page.html", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()

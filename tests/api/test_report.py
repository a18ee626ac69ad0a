"""Reports of a run in every format; the run itself stays as it was sealed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from report_pages import Page
from tiny_data import put_program

from fedsynth.api.launch import start
from fedsynth.api.report import write_report_as
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.report import pdf
from fedsynth.storage.run_directory import RunDirectory

WORDS = [
    "scenario=classification",
    "data=shapes",
    "method=ldpdc,upper_bound",
    "epsilon=1,10",
    "parties=2",
    "partition=iid",
    "stages=together",
    "ldpdc.spc=4",
    "engine=inprocess",
    "preset=smoke",
    "evaluation.max_images=200",
    "evaluation.nets=1",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "shapes"
    return started(out, WORDS)


def started(out: Path, words: list[str]) -> Path:
    config = resolve(parse_overrides([*words, f"out={out}"]))
    start(config, words, quiet=True, note=lambda _text: None)
    return out


def hashes(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file() and "report/" not in p.as_posix()]
    return {p.as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_page_is_written_beside_the_sealed_one(run: Path) -> None:
    before = hashes(run)
    made = write_report_as(run, "html")
    assert made == run / "report" / "report.html"
    assert hashes(run) == before
    page, own = Page(made.read_text()), Page((run / "report.html").read_text())
    assert page.text == own.text
    links = [link["href"] or "" for link in page.all("a")]
    certificates = [link for link in links if not link.startswith("#")]
    assert len(certificates) == 2
    assert all((made.parent / link).is_file() for link in certificates)
    for kind, magic in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        figure = run / "report" / "figures" / f"accuracy_over_budgets.{kind}"
        assert figure.read_bytes().startswith(magic)


def test_markdown_and_latex_lie_with_their_figures_and_tables(run: Path, tmp_path: Path) -> None:
    made = write_report_as(run, "md", tmp_path / "md")
    text = made.read_text()
    assert "| ldpdc | 10 |" in text
    for name in re.findall(r"\]\((figures/.+?)\)", text):
        assert (tmp_path / "md" / name).is_file()
    made = write_report_as(run, "latex", tmp_path / "latex")
    text = made.read_text()
    names = re.findall(r"\\input{(.+?)}", text)
    assert "tables/results" in names
    assert all((tmp_path / "latex" / f"{name}.tex").is_file() for name in names)
    for name in re.findall(r"{(figures/.+?\.pdf)}", text):
        assert (tmp_path / "latex" / name).is_file()


def every_text(folder: Path, work: Path) -> str:
    """The texts of a run in every format, with the axes of its figures and an index."""
    write_report_as(folder, "md", work / "md")
    write_report_as(folder, "latex", work / "latex")
    write_report_as(folder.parent, "md", work / "index")
    files = [*work.rglob("*.md"), *work.rglob("*.tex"), *work.rglob("accuracy*.svg")]
    assert len(files) > 8
    return "\n".join([Page((folder / "report.html").read_text()).text, *map(read, files)])


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_run_is_described_by_what_it_was_tested_on(run: Path, tmp_path: Path) -> None:
    """No text calls a hold-out test data, but for the sentence that tells them apart."""
    held = started(tmp_path / "runs" / "held", [*WORDS, "holdout=500"])
    text = every_text(held, tmp_path / "held")
    apart = "Tested on a hold-out of the training data instead of the test data."
    claims = r"\btest (data|records?|set|accuracy)\b"
    assert not re.search(claims, text.replace(apart, ""), re.IGNORECASE)
    assert "Accuracy on a hold-out of the training data" in text
    assert "hold-out accuracy" in text
    plain = every_text(run, tmp_path / "plain")
    assert not re.search(r"hold-out|held-out", plain, re.IGNORECASE)
    assert "Accuracy on the test data" in plain


def test_the_pdf_is_the_printed_page_without_links(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """for word in "$@"; do
      case "$word" in
        --print-to-pdf=*) target="${word#--print-to-pdf=}" ;;
        file://*) cp "${word#file://}" "$target" ;;
      esac
    done"""
    put_program(tmp_path / "bin", "chromium", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(pdf, "BROWSERS", ("chromium",))
    made = write_report_as(run, "pdf", tmp_path / "pdf")
    assert made == tmp_path / "pdf" / "report.pdf"
    assert [path.name for path in (tmp_path / "pdf").iterdir()] == ["report.pdf"]
    page = Page(made.read_text())
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert "stage-1.privacy.json" in page.text


def test_a_folder_of_runs_has_an_index(run: Path) -> None:
    made = write_report_as(run.parent, "html")
    assert made == run.parent / "index.html"
    assert "shapes/report.html" in [link["href"] for link in Page(made.read_text()).all("a")]
    elsewhere = write_report_as(run.parent, "md", run.parent.parent / "pages")
    assert f"(../{run.parent.name}/shapes/report.html)" in elsewhere.read_text()


def test_what_cannot_be_reported_is_one_message(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'html'"):
        write_report_as(run, "htm")
    with pytest.raises(UserError, match="does not exist"):
        write_report_as(tmp_path / "nothing", "html")
    empty = RunDirectory.create(tmp_path / "empty")
    empty.write_config({"scenario": "classification"})
    with pytest.raises(UserError, match="has no numbers yet"):
        write_report_as(empty.path, "html")
    assert not (empty.path / "report").exists()

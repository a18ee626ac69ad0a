"""Pages of the documents: blocks run in order, numbers stand in results, pages have tests."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from guides import ROOT, execute

from fedsynth.cli.main import app
from fedsynth.cli.run import main as run_command
from fedsynth.core.enums import DataKind
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.methods.registry import all_methods

PAGES = {
    "docs/tour.md": ("tour/report.html", "handed_over/README.md"),
    "docs/stories.md": (
        "table.tex",
        "accuracy.svg",
        "paper/paper.tex",
        "board/report.html",
        "handed_over/data.csv",
        "private_shapes/stage-1.npz",
    ),
}

TESTED_IN = {  # pages with blocks, and the file that runs or reads them
    "README.md": "api/test_python_guide.py",
    "docs/concepts/relation_unit_view.md": "test_docs_privacy.py",
    "docs/guides/add_a_data_set.md": "test_extension.py",
    "docs/guides/add_a_method.md": "test_extension.py",
    "docs/guides/add_a_scenario.md": "test_extension.py",
    "docs/guides/audit.md": "cli/test_audit.py",
    "docs/guides/certificates.md": "cli/test_certificates_guide.py",
    "docs/guides/export.md": "cli/test_export_guide.py",
    "docs/guides/installation.md": "test_guides.py",
    "docs/guides/kubernetes.md": "cli/test_cluster_guides.py",
    "docs/guides/own_data.md": "cli/test_own_data_guide.py",
    "docs/guides/plugins.md": "test_guides.py",
    "docs/guides/python_api.md": "api/test_python_guide.py",
    "docs/guides/ray_cluster.md": "test_guides.py",
    "docs/guides/real_nodes.md": "cli/test_nodes_guide.py",
    "docs/guides/reports.md": "cli/test_reports_guide.py",
    "docs/guides/slurm.md": "cli/test_cluster_guides.py",
    **dict.fromkeys(PAGES, "test_guides.py"),
}


def fenced(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: kind and text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_every_page_with_blocks_has_a_test_that_reads_it():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {str(path.relative_to(ROOT)) for path in pages}
    assert {page for page in found if fenced(page)} == set(TESTED_IN)
    for page, file in TESTED_IN.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert Path(page).stem in text, page


def test_the_commands_of_the_readme_are_understood(capsys):
    """Runs of these scenarios at small size are in cli/test_run.py."""
    (block,) = [text for kind, text in fenced("README.md") if "-m fedsynth.run" in text]
    scenarios = 0
    for line in block.splitlines():
        python, option, module, *words = shlex.split(line, comments=True)
        assert (python, option, module) == ("python", "-m", "fedsynth.run")
        if words[0] in ("--list", "--help"):
            assert run_command(words) == 0
        elif words[0] != "--resume":
            config = resolve(parse_overrides([word for word in words if word != "--plan"]))
            scenarios += len(config.methods) > 0
    assert scenarios == 4
    assert "split_mnist" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["docs/guides/plugins.md", "docs/guides/ray_cluster.md"])
def test_the_commands_of_pages_on_other_machines_are_understood(page: str):
    """Runs with plug-ins are in test_extension.py; test_two_nodes.py starts nodes by the guide."""
    lines = [
        shlex.split(line, comments=True) for _, text in fenced(page) for line in text.split("\n")
    ]
    commands = [words for words in lines if words[:2] == ["fedsynth", "run"]]
    assert commands
    for _, _, *words in commands:
        keys = [word if "=" in word else f"scenario={word}" for word in words]
        keys = [word for word in keys if not word.startswith(("plugin=", "method="))]
        assert resolve(parse_overrides(keys)).methods


def program(page: str) -> str:
    """The Python and shell blocks of a page, in their order, as one program."""
    kinds = fenced(page)
    assert {kind for kind, _ in kinds} <= {"python", "bash"}
    parts = ["from fedsynth.cli.main import app as _app"]
    for kind, block in kinds:
        lines = [block]
        if kind == "bash":
            words = [shlex.split(line) for line in block.splitlines()]
            assert all(first == "fedsynth" for first, *_ in words)
            call = "_app.main({!r}, prog_name='fedsynth', standalone_mode=False)"
            lines = [call.format(rest) for _, *rest in words]
        parts += lines
    return "\n".join(parts)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed(page: str, tmp_path: Path):
    execute(program(page), tmp_path)
    for name in PAGES[page]:
        assert (tmp_path / name).stat().st_size > 0, name
    if page == "docs/stories.md":
        assert "mst" in (tmp_path / "table.tex").read_text()


def comparison_rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the comparison."""
    text = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_every_speed_of_the_comparison_was_printed_by_its_command():
    command, printed = "", ""
    rows = comparison_rows("Speed")
    for *_, ours, theirs, source in rows:
        if source != "the same":
            command, file = re.findall(r"`(.*?)`", source)
            assert (ROOT / command.split()[1]).is_file()
            printed = (ROOT / file).read_text(encoding="utf-8")
        for number in (ours, theirs):
            assert re.search(rf"(?<![\d.]){re.escape(number.split()[0])}(?![\d.])", printed), number
    assert len(rows) > 4


def test_the_features_of_the_comparison_are_commands_and_counted():
    private = [some for some in all_methods().values() if some.private]
    kinds = [sum(kind in some.kinds for some in private) for kind in DataKind]
    numbers = [len(private), *kinds]
    rows = comparison_rows("Features of fedsynth")
    assert list(map(int, re.findall(r"\d+", rows[0][0]))) == numbers
    for _, command in rows:
        name, word, *_ = shlex.split(command.strip("`"))
        assert name == "fedsynth"
        assert word in app.commands


def test_the_guide_to_installation_names_what_the_metadata_say():
    text = (ROOT / "docs/guides/installation.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert extras == set(project["optional-dependencies"])
    versions = re.findall(r":: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"Python {', '.join(versions[:-1])} or {versions[-1]}" in text
    assert project["requires-python"] == ">=3.11,<3.14"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for kept in ("fedsynth", "scenarios", "pyproject.toml", "README.md", "LICENSE"):
        assert f"!{kept}" in ignored

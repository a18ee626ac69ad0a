"""The structure that the documentation describes: places of tests, of modules, of imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "fedsynth", ROOT / "tests"
STATEMENTS = 20  # in functions; a module with more needs a test file of its own

CROSS_CUTTING = {
    "test_architecture.py": "the structure of the repository",
    "test_data_dependent_bound.py": "a program of benchmarks/",
    "test_docs_privacy.py": "pages of docs/",
    "test_extension.py": "the examples of the guides",
    "test_guides.py": "the tour and the stories",
    "test_faults.py": "whole runs with injected faults",
    "test_node_networks.py": "real nodes in network namespaces",
    "test_two_nodes.py": "whole runs on two nodes without a shared disk",
    "api/test_notebooks.py": "the notebooks",
    "api/test_python_guide.py": "the guide to the Python API",
    "cli/test_wrong_inputs.py": "wrong words on the command line, of every kind",
    "cli/test_certificates_guide.py": "the guide to certificates",
    "cli/test_cluster_guides.py": "the guides to SLURM and Kubernetes",
    "cli/test_nodes_guide.py": "the guide to real nodes",
    "cli/test_export_guide.py": "the guide to exports",
    "cli/test_own_data_guide.py": "the guide to records of one's own",
    "cli/test_reports_guide.py": "the guide to reports",
    "experiment/test_attacked_parties.py": "real parties whose files are attacked",
    "engine/ray/test_pool_on_clusters.py": "the pool, without Ray",
    "experiment/test_cheating_servers.py": "attacks of several messages on real parties",
    "methods/test_colour.py": "every method on colour images",
    "methods/test_contract.py": "every method",
    "methods/test_contract_devices.py": "every method on a pretended GPU",
    "methods/test_contract_learning.py": "that every private method learns without noise",
    "methods/test_contract_privacy.py": "the privacy of every method",
    "methods/test_contract_relation.py": "every method under both relations",
    "methods/test_image_sizes.py": "every method at several image sizes",
    "methods/test_missing_classes.py": "every method with parties that lack classes",
    "methods/test_published_defaults.py": "the defaults of all published methods",
    "methods/dpdc/test_ndpdc_tables.py": "ndpdc and its features on tables",
    "privacy/test_fuzz_files.py": "damaged files of every kind",
    "privacy/test_fuzz_requests.py": "altered requests to every method",
    "privacy/test_summation_order.py": "every mechanism that adds up records",
    "privacy/auditing/test_attacks.py": "attacks on several mechanisms",
    "privacy/accounting/test_published_epsilons.py": "published epsilons, over all conventions",
}

COVERED_ELSEWHERE = {
    "engine/base.py": "engine/test_factory.py",
    "cli/node_processes.py": "cli/test_nodes.py",
    "cli/node_submission.py": "cli/test_nodes.py",
    "engine/flower_commands.py": "cli/test_nodes.py",
    "engine/flower_node.py": "cli/test_nodes.py",
    "engine/ray/engine.py": "test_two_nodes.py",
    "methods/gs_wgan/client.py": "methods/gs_wgan/test_gs_wgan.py",
}

EXAMPLES = {
    "methods/mean_image.py",
    "data/datasets/stripes.py",
}  # the reader of the guides writes them


def modules() -> list[str]:
    """Every module that is not an `__init__`, by its path below the package."""
    paths = (path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    return sorted(path.relative_to(SOURCE).as_posix() for path in paths)


def test_files() -> list[str]:
    """Every test file, by its path below `tests`."""
    return sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


test_files.__test__ = False  # type: ignore[attr-defined]


def own_test(module: str) -> str:
    """The test file of a module, by its path."""
    path = Path(module)
    return (path.parent / f"test_{path.name}").as_posix()


def statements(module: str) -> int:
    """The number of statements in a module's functions, without docstrings."""
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    inside = {node for function in functions for part in function.body for node in ast.walk(part)}
    return sum(
        isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in inside
    )


def named_paths(text: str) -> set[str]:
    """The paths of modules and packages that a text names, relative to `fedsynth`."""
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    words = re.findall(r"(?<![\w/.])(?:fedsynth/)?((?:\w+/)+(?:\w+\.py)?|(?:\w+/)+\w+)", text)
    return {word for word in words if word.split("/")[0] in packages}


def exists(path: str) -> bool:
    """True if the package has a module or folder at this path."""
    return (SOURCE / path).exists()


def test_every_test_file_lies_where_its_module_does():
    astray = []
    for name in test_files():
        path = Path(name)
        subject = (path.parent / path.name.removeprefix("test_")).as_posix()
        if name not in CROSS_CUTTING and not exists(subject) and not exists(subject[:-3]):
            astray.append(name)
    assert not astray, "no module has their name; move them, or state why they are cross-cutting"


def test_every_module_with_behaviour_has_a_test_file():
    missing = [
        module
        for module in modules()
        if statements(module) > STATEMENTS
        and module not in COVERED_ELSEWHERE
        and not (TESTS / own_test(module)).is_file()
    ]
    assert not missing


def test_the_lists_of_exceptions_hold_nothing_needless():
    stale = CROSS_CUTTING.keys() - set(test_files())
    stale |= COVERED_ELSEWHERE.keys() - set(modules())
    stale |= set(COVERED_ELSEWHERE.values()) - set(test_files())
    stale |= {module for module in COVERED_ELSEWHERE if (TESTS / own_test(module)).is_file()}
    stale |= {module for module in COVERED_ELSEWHERE if statements(module) <= STATEMENTS}
    assert not stale


@pytest.mark.parametrize("page", ["docs/architecture.md", "README.md", "CONTRIBUTING.md"])
def test_every_place_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = named_paths(text)
    assert named, "the page names no place: the pattern no longer finds them"
    assert not {path for path in named - EXAMPLES if not exists(path)}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_that_a_page_links_exists(page):
    """The documentation's own build checks `docs` and not these."""
    links = re.findall(r"\]\(([^)#:\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_table_of_places_is_read():
    """The pattern finds every row of "Where to look"."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (.*) \|$", text.split("## Where to look")[1], re.MULTILINE)
    assert len(rows) > 5
    assert all(named_paths(row) for row in rows if row != "place")


def test_every_command_that_a_page_names_exists():
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        for name in re.findall(r"python -m fedsynth\.([\w.]+)", page.read_text(encoding="utf-8")):
            path = name.rstrip(".").replace(".", "/")
            assert exists(f"{path}.py") or exists(path), f"{page.name}: {name}"


def test_the_layers_of_the_page_are_those_that_are_enforced():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    enforced = project.split("layers = [")[1].split("]")[0]
    names = [n for n in re.findall(r"fedsynth\.(\w+)", enforced) if (SOURCE / n).is_dir()]
    assert listed == names
    existing = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert existing == set(names)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python in the repository."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_documentation_builds(tmp_path):
    """Without a warning: no dead link, no name that mkdocstrings cannot find."""
    done = run_python("-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "architecture.html").is_file()


def test_the_guard_needs_no_upper_layer_and_no_engine():
    program = (
        "import sys, fedsynth.privacy.guard; print(*(name for name in sys.modules "
        "if name.split('.')[0] in ('ray', 'flwr') or name.startswith(('fedsynth.report', "
        "'fedsynth.evaluation', 'fedsynth.experiment'))))"
    )
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_the_files_that_run_first_exist():
    text = (TESTS / "conftest.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^LONG = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r'"(.+?)"', names)
    assert named
    assert not set(named) - set(test_files())

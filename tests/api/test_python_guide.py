"""The guide to the Python API: its blocks run one after another, as a reader would run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides import blocks, execute

CHECKS = """
assert set(plan["method"]) == {"dp_sgd", "ldpdc"}
assert plan["epsilon_pld"].between(0.9, 1.0001).all()
assert accuracy["metric"].str.startswith("accuracy").any()
assert promise["epsilon_add_remove"] <= 10.0001 < promise["epsilon_replace_one"]
assert images.shape == (6, 1, 28, 28)
assert set(labels) <= {"cat", "dog"}
assert fedsynth.load("released/stage-1.npz").certificate.body["schema"]["data"]["name"] == "records"
assert rows["age"].between(18, 90).all()
assert set(rows["ward"]) <= {"north", "south"}
assert set(ill) <= {0, 1}
"""


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    found = blocks("docs/guides/python_api.md", "python")
    assert len(found) == 6
    execute("\n".join(found) + CHECKS, tmp_path)


@pytest.mark.timeout(300)
def test_the_lines_of_the_readme_run(tmp_path: Path) -> None:
    (block,) = blocks("README.md", "python")
    tiny = 'data="shapes", parties=2, holdout=1600, delta=1e-3, engine="inprocess", '
    tiny += 'evaluation={"width": 4, "nets": 1, "max_images": 50}, psg={"runs": 2, "outer": 2}, '
    program = block.replace('method="psg", epsilon=1', f'{tiny} method="psg", epsilon=1')
    assert program != block
    records = (
        "import numpy as np\nX = np.zeros((400, 28, 28), np.uint8)\ny = np.repeat([0, 1], 200)"
    )
    program = program.replace('"sketch_teach"', '"ldpdc"').replace("1000", "5")
    execute(f"{records}\n{program}", tmp_path)

"""torchvision can be imported beside a torch it was not built for, and only then is anything done.

Each case runs in a fresh interpreter with a torchvision of its own on the path, so that both the
broken and the healthy import are seen whatever is installed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# What the real package does at import time: register a fake kernel for an operator.
REGISTERS = """
import torch
@torch.library.register_fake("torchvision::nms")
def fake(dets, scores, iou_threshold):
    return dets
"""
BRINGS_OPERATORS = """
import torch
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def run(path, code):
    code = "from fedsynth.data.fetch.torchvision_compat import import_torchvision\n" + code
    code = f"import sys; sys.path[:0] = {[str(path), str(ROOT)]!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=path
    )


def package(tmp_path, init):
    folder = tmp_path / "torchvision"
    folder.mkdir()
    (folder / "early.py").write_text("")
    (folder / "__init__.py").write_text("from torchvision import early\n" + init)
    (folder / "datasets.py").write_text("here = True")
    return tmp_path


USE = """
import fedsynth.data.fetch.torchvision_compat as room
print(import_torchvision("torchvision.datasets").here, len(room._declared))
import torchvision
print(torchvision.early.__name__, import_torchvision() is torchvision)
"""


def test_a_broken_import_is_mended(tmp_path):
    plain = "try: import torchvision\nexcept RuntimeError as error: print(error)\n"
    done = run(package(tmp_path, REGISTERS), plain + USE)
    told = "operator torchvision::nms does not exist"
    assert done.stdout.split("\n")[:3] == [told, "True 1", "torchvision.early True"], done.stderr


def test_a_healthy_import_is_left_alone(tmp_path):
    done = run(package(tmp_path, BRINGS_OPERATORS + REGISTERS), USE)
    assert done.stdout.split("\n")[:2] == ["True 0", "torchvision.early True"], done.stderr


@pytest.mark.parametrize(
    "init", ["raise RuntimeError('another trouble')", "raise ImportError('another trouble')"]
)
def test_other_failures_are_passed_on(tmp_path, init):
    kind = init.split()[1].partition("(")[0]
    code = f"try: import_torchvision()\nexcept {kind} as e: print(e)\n"
    code += "import fedsynth.data.fetch.torchvision_compat as compat\nprint(len(compat._declared))"
    done = run(package(tmp_path, init), code)
    assert done.stdout.split("\n")[:2] == ["another trouble", "0"]


def test_the_installed_torchvision_works(tmp_path):
    code = """
import torch
names = ("datasets", "models", "transforms.v2", "utils")
datasets, models, transforms, utils = (import_torchvision(f"torchvision.{n}") for n in names)
assert datasets.MNIST.mirrors
image = transforms.Pad(2)(torch.zeros(3, 8, 8))
print(tuple(image.shape), tuple(utils.make_grid([image, image]).shape)[0])
print(tuple(models.squeezenet1_1(num_classes=5)(torch.zeros(1, 3, 64, 64)).shape))
"""
    assert run(tmp_path, code).stdout.split("\n")[:2] == ["(3, 12, 12) 3", "(1, 5)"]


def test_the_data_room_does_not_import_torchvision_before_it_is_needed(tmp_path):
    code = "import sys, fedsynth.data.registry as d; d.load('shapes', 'test')\n"
    assert run(tmp_path, code + "print('torchvision' in sys.modules)").stdout == "False\n"

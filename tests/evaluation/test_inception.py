"""The Inception network is loaded from its weights, or refused with instructions."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import inception as module
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.inception import (
    CACHE,
    PUBLISHED,
    TORCHVISION,
    find_weights,
    inception_features,
)

DIGITS = DatasetInfo("digits", (1, 28, 28), 10, (0.1,), (0.3,))


class Tiny(nn.Module):
    """A stand-in for torchvision's network: the mean of each channel, then a head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc: nn.Module = nn.Linear(3, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1:] == (3, 299, 299)
        assert not self.training
        return self.fc(x.mean(dim=(2, 3)))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of torch, without a network."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def unreachable(**_: object) -> None:
        raise OSError("no network in this test")

    weights = types.SimpleNamespace(IMAGENET1K_V1=types.SimpleNamespace(get_state_dict=unreachable))
    models = types.SimpleNamespace(inception_v3=lambda **_: Tiny(), Inception_V3_Weights=weights)
    monkeypatch.setattr(module, "import_torchvision", lambda _name: models)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("source", [CACHE, "no/such.pth"])
def test_missing_weights_are_an_error_before_anything_runs(source: str) -> None:
    with pytest.raises(UserError, match=rf"fid_weights={source}: no Inception weights found") as e:
        EvaluationConfig(fid_weights=source).check(DIGITS)
    for word in (PUBLISHED, TORCHVISION, "download", "FID-lite"):
        assert word in str(e.value)


@pytest.mark.usefixtures("empty_cache")
def test_weights_are_downloaded_only_on_request() -> None:
    assert find_weights("download") is None  # to be downloaded
    with pytest.raises(UserError, match="cannot be loaded: no network in this test"):
        inception_features("download")


def test_torchvisions_weights_from_the_cache(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 5)
    state = Tiny().state_dict()
    torch.save(state, empty_cache / TORCHVISION)
    origin, features = inception_features(CACHE)
    assert origin == "torchvision"
    images = torch.rand(12, 1, 28, 28)
    found = features(images)
    assert found.shape == (12, 3)  # without the head
    expected = 2 * images.mean(dim=(1, 2, 3)) - 1
    torch.testing.assert_close(found, expected[:, None].expand(-1, 3), atol=0.02, rtol=0)
    as_bytes = (images * 255).round().to(torch.uint8)
    torch.testing.assert_close(features(as_bytes), found, atol=0.01, rtol=0)
    torch.testing.assert_close(features(2 * images), features((2 * images).clamp(0, 1)))


def test_damaged_weights_are_one_message(empty_cache: Path) -> None:
    (empty_cache / TORCHVISION).write_bytes(b"not weights")
    with pytest.raises(UserError, match="weights cannot be loaded") as error:
        inception_features(CACHE)
    assert "\n" not in str(error.value)


def test_the_published_weights_need_their_package(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_cache / PUBLISHED).write_bytes(b"")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"needs the package torch-fidelity \(pip install"):
        find_weights(CACHE)


def test_the_published_weights_come_first_and_take_bytes(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(Tiny().state_dict(), empty_cache / TORCHVISION)
    (empty_cache / PUBLISHED).write_bytes(b"")

    class Extractor(nn.Module):
        def __init__(self, *arguments: object) -> None:
            super().__init__()
            assert arguments == ("inception-v3-compat", ["2048"], str(empty_cache / PUBLISHED))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            assert x.dtype == torch.uint8
            return (x.float().mean(dim=(2, 3)),)

    fake = types.SimpleNamespace(FeatureExtractorInceptionV3=Extractor)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, "torch_fidelity.feature_extractor_inceptionv3", fake)
    monkeypatch.setitem(sys.modules, "torch_fidelity", types.SimpleNamespace())
    origin, features = inception_features(CACHE)
    assert origin == "torch-fidelity"
    torch.testing.assert_close(features(torch.full((2, 1, 4, 4), 0.5)), torch.full((2, 3), 128.0))

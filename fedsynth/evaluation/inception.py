"""The Inception network of the published FID, if its weights are available.

Two sets of weights are in use and give different distances: those of torch-fidelity (used by
torchmetrics), with which published numbers were computed, and those of torchvision, a port trained
on ImageNet in the same way. Every number comes with the name of its weights. Nothing is downloaded
unless `evaluation.fid_weights=download`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import unit_interval
from fedsynth.data.fetch.torchvision_compat import import_torchvision

PUBLISHED = "weights-inception-2015-12-05-6726825d.pth"  # file name of torch-fidelity
TORCHVISION = "inception_v3_google-0cc3c7bd.pth"
CACHE, DOWNLOAD = "cache", "download"
SIDE = 299
BATCH = 50

Features = Callable[[torch.Tensor], torch.Tensor]


def find_weights(source: str) -> Path | None:
    """The file of weights that `source` names.

    Args:
        source: a path, `cache` (of torch) or `download`.

    Returns:
        The path, or None if the weights are to be downloaded.

    Raises:
        UserError: there is no such file, or a package that reads it is not installed.
    """
    cache = Path(torch.hub.get_dir()) / "checkpoints"
    paths = [cache / PUBLISHED, cache / TORCHVISION] if source == CACHE else [Path(source)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None and source != DOWNLOAD:
        raise UserError(
            f"evaluation.fid_weights={source}: no Inception weights found. Put {PUBLISHED} (of "
            f"torch-fidelity, for the published distance) or {TORCHVISION} (of torchvision) into "
            f"the cache of torch, give a path, or set evaluation.fid_weights={DOWNLOAD}; "
            "leave it empty for FID-lite only."
        )
    if path and path.name == PUBLISHED and not importlib.util.find_spec("torch_fidelity"):
        raise UserError(
            f"evaluation.fid_weights={source}: {PUBLISHED} needs the package torch-fidelity "
            "(pip install 'torchmetrics[image]')."
        )
    return path


def inception_features(source: str, device: torch.device | str = "cpu") -> tuple[str, Features]:
    """The origin of the weights, and a function from images (bytes or floats) to 2,048 features."""
    path = find_weights(source)
    if path is not None and path.name == PUBLISHED:
        return "torch-fidelity", _in_batches(_published(path, device), device)
    return "torchvision", _in_batches(_torchvision(path, device), device)


def _published(path: Path, device: torch.device | str) -> Features:
    """The network of the published distance; it takes bytes and resizes them itself."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    net = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).to(device)
    return lambda images: net.eval()((images * 255).round().to(torch.uint8))[0]


def _torchvision(path: Path | None, device: torch.device | str) -> Features:
    """torchvision's port, on images resized to 299 and scaled to [-1, 1]."""
    models = import_torchvision("torchvision.models")
    try:
        if path is None:
            state = models.Inception_V3_Weights.IMAGENET1K_V1.get_state_dict(check_hash=True)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        net = models.inception_v3(weights=None, transform_input=False, init_weights=False)
        net.load_state_dict(state)
    except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"evaluation.fid_weights: the weights cannot be loaded: {reason}"
        ) from error
    net.fc = torch.nn.Identity()
    net.to(device).eval()

    def features(images: torch.Tensor) -> torch.Tensor:
        large = functional.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=False)
        output: torch.Tensor = net(2 * large - 1)
        return output

    return features


def _in_batches(network: Features, device: torch.device | str) -> Features:
    """Apply the network to batches of images in [0, 1] with three channels, without gradients."""

    @torch.inference_mode()
    def features(images: torch.Tensor) -> torch.Tensor:
        parts = []
        for part in torch.split(images, BATCH):
            clamped = unit_interval(part.to(device)).clamp(0, 1)
            parts.append(network(clamped.expand(-1, 3, -1, -1)).float())
        return torch.cat(parts).cpu()

    return features

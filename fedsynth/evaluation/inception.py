"""The Inception network of the published FID, where its weights are at hand.

Two sets of weights are in use and give different distances. `torchmetrics` (through torch-fidelity)
holds those that published numbers were made with; torchvision's are a port trained for ImageNet by
the same recipe. Which one was used stands beside every number. Nothing is downloaded unless
`evaluation.fid_weights=download` asks for it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.data.fetch.torchvision_compat import import_torchvision
from fedsynth.evaluation.types import pixels

PUBLISHED = "weights-inception-2015-12-05-6726825d.pth"  # file names the programs use themselves
TORCHVISION = "inception_v3_google-0cc3c7bd.pth"
CACHE, DOWNLOAD = "cache", "download"
SIDE = 299
PASS = 50

Features = Callable[[torch.Tensor], torch.Tensor]


def at_hand(source: str) -> Path | None:
    """The file of weights that `source` means: a path, or what torch's cache holds. None where
    they are to be downloaded first; a UserError where they are not there."""
    cache = Path(torch.hub.get_dir()) / "checkpoints"
    places = [cache / PUBLISHED, cache / TORCHVISION] if source == CACHE else [Path(source)]
    found = next((place for place in places if place.is_file()), None)
    if found is None and source != DOWNLOAD:
        raise UserError(
            f"evaluation.fid_weights={source}: there are no Inception weights. Put {PUBLISHED} (of "
            f"torch-fidelity, for the published distance) or {TORCHVISION} (of torchvision) into "
            f"torch's cache, give the path of one, or say evaluation.fid_weights={DOWNLOAD}; "
            "leave it empty for FID-lite alone."
        )
    if found and found.name == PUBLISHED and not importlib.util.find_spec("torch_fidelity"):
        raise UserError(
            f"evaluation.fid_weights={source}: {PUBLISHED} needs the package torch-fidelity "
            "(pip install 'torchmetrics[image]')."
        )
    return found


def inception(source: str) -> tuple[str, Features]:
    """Whose weights these are, and a function from images (bytes or floats) to 2,048 features."""
    path = at_hand(source)
    if path is not None and path.name == PUBLISHED:
        return "torch-fidelity", _in_passes(_published(path))
    return "torchvision", _in_passes(_torchvision(path))


def _published(path: Path) -> Features:
    """The network of published distances: bytes in, resized inside."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    net = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).eval()
    return lambda grey: net((grey * 255).round().to(torch.uint8))[0]


def _torchvision(path: Path | None) -> Features:
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
        raise UserError(f"evaluation.fid_weights: the weights cannot be had: {reason}") from error
    net.fc = torch.nn.Identity()
    net.eval()

    def features(images: torch.Tensor) -> torch.Tensor:
        large = functional.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=False)
        return net(2 * large - 1)

    return features


def _in_passes(network: Features) -> Features:
    """Images in [0, 1] with three channels, a few at a time, without a graph."""

    @torch.inference_mode()
    def features(images: torch.Tensor) -> torch.Tensor:
        parts = []
        for part in images.split(PASS):
            clamped = pixels(part).clamp(0, 1)
            parts.append(network(clamped.expand(-1, 3, -1, -1)).float())
        return torch.cat(parts)

    return features

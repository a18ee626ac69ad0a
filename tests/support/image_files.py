"""Small image files and lists in the published layouts."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
from PIL import Image


def write_image(path, number, size=(178, 218)):
    """A smooth image whose colour depends on its number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.linspace(0, 60, size[1])[:, None, None]
    pixels = rows + np.array([30 * number % 190, 15 * number, 100])[None, None] * np.ones(
        (1, size[0], 1)
    )
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=95)


def write_list(monkeypatch, module, name, path, text):
    """Write a list and make its MD5 the published one; returns the MD5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    md5 = hashlib.md5(text.encode()).hexdigest()
    if name:
        monkeypatch.setattr(module, name, dataclasses.replace(getattr(module, name), md5=md5))
    return md5

"""Records of one's own by path: `data=file:PATH`, whose form follows from what is there.

An npz file, a CSV or Parquet file with a schema, a Hugging Face data set on disk, or a folder of
images; and `data=torchvision:NAME`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.data.formats import huggingface, image_folder, npz, table_file, torchvision_set
from fedsynth.data.formats.own_facts import OwnFacts, checked, stamp

PREFIXES = (npz.PREFIX, torchvision_set.PREFIX)
FORMS = (
    "an npz file, a CSV or Parquet file with a schema, a folder with a folder of images per class, "
    "or a Hugging Face data set on disk"
)


def path_of(name: str) -> Path:
    """The path in `file:PATH`."""
    return Path(name.removeprefix(npz.PREFIX)).expanduser()


def describe(name: str, data_dir: str | Path | None = None) -> OwnFacts:
    """The public facts of records of one's own.

    Raises:
        UserError: There is nothing at the path, its form is not known, or it cannot be used.
    """
    if name.startswith(torchvision_set.PREFIX):
        return torchvision_set.describe(name, data_dir)
    path = path_of(name)
    if not path.exists():
        raise UserError(f"data={name}: there is no file {path}. It may be {FORMS}.")
    if path.is_dir():
        form = huggingface if huggingface.is_saved(path) else image_folder
        return form.describe(name, path, stamp(path))
    if path.suffix.lower() in table_file.SUFFIXES:
        return table_file.describe(name, path, stamp(path))
    if path.suffix.lower() != ".npz":
        raise UserError(f"data={name}: the form of {path.name} is not known. Allowed: {FORMS}.")
    info, train, test = npz.describe(name)
    return checked(OwnFacts(info, train, test))


def read(
    name: str, split: str, data_dir: str | Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Records and labels of a split."""
    if name.startswith(torchvision_set.PREFIX):
        return torchvision_set.read(name, split, data_dir)
    path = path_of(name)
    if path.is_dir():
        if huggingface.is_saved(path):
            return huggingface.read(name, path, split, stamp(path))
        images, labels = image_folder.read(name, path, split, stamp(path))
        return images, labels
    if path.suffix.lower() in table_file.SUFFIXES:
        return table_file.read(name, path, split, stamp(path))
    return npz.read(name, split)

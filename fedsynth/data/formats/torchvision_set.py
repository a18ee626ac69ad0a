"""A data set of torchvision by the name of its class: `data=torchvision:KMNIST`.

Read from the data directory, in the layout that the class has there; nothing is downloaded. Further
words are the class's own: `torchvision:EMNIST:letters` has the split letters.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError, unknown
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.fetch.torchvision_compat import import_torchvision
from fedsynth.data.formats.image_folder import channels_of, pixels_of
from fedsynth.data.formats.own_facts import OwnFacts, checked, image_facts

PREFIX = "torchvision:"
Split = tuple[np.ndarray, np.ndarray]


def describe(name: str, data_dir: str | Path | None) -> OwnFacts:
    """The public facts: the classes that the class names, and the labels."""
    return _opened(name, data_directory(data_dir))[0]


def read(name: str, split: str, data_dir: str | Path | None) -> Split:
    """Images (uint8 [n, c, h, w]) and labels of a split."""
    facts, images = _opened(name, data_directory(data_dir))
    return images[split], facts.train if split == "train" else facts.test


@functools.lru_cache(maxsize=2)
def _opened(name: str, root: Path) -> tuple[OwnFacts, dict[str, np.ndarray]]:
    word, _, own_split = name.removeprefix(PREFIX).partition(":")
    cls = _class(word)
    sets = {split: _made(cls, name, own_split, split, root) for split in ("train", "test")}
    classes = tuple(str(c) for c in getattr(sets["train"], "classes", ()) or ())
    images, labels = {}, {}
    shape: tuple[int, int, int] | None = None
    for split, items in sets.items():
        pictures, numbers = zip(*(items[i] for i in range(len(items))), strict=True)
        first = pictures[0]
        if shape is None:
            shape = (channels_of(first), first.height, first.width)
        images[split] = np.stack(
            [pixels_of(p, shape, None, f"{name}, record {i + 1}") for i, p in enumerate(pictures)]
        )
        labels[split] = np.array([int(number) for number in numbers], np.int64)
    most = int(max(labels["train"].max(), labels["test"].max())) + 1
    names = classes if len(classes) >= most else tuple(str(i) for i in range(most))
    assert shape is not None
    facts = OwnFacts(image_facts(name, shape, names), labels["train"], labels["test"])
    return checked(facts), images


def _class(word: str) -> Any:
    datasets = import_torchvision("torchvision.datasets")
    names = [n for n in datasets.__all__ if inspect.isclass(getattr(datasets, n))]
    if word not in names:
        raise unknown("torchvision data set", word, names)
    return getattr(datasets, word)


def _made(cls: Any, name: str, own_split: str, split: str, root: Path) -> Any:
    """One split, made as the class takes it: by `train=`, by `split=`, or both."""
    known = inspect.signature(cls).parameters
    options: dict[str, Any] = {"download": False} if "download" in known else {}
    takes_train = "train" in known or "kwargs" in known
    if own_split:
        if "split" not in known:
            raise UserError(f"data={name}: {cls.__name__} has no split {own_split!r}.")
        options |= {"split": own_split, "train": split == "train"}
    elif "split" in known:
        options["split"] = split
    elif takes_train:
        options["train"] = split == "train"
    else:
        raise UserError(f"data={name}: {cls.__name__} has no training and test records of its own.")
    try:
        made = cls(root, **options)
        if not len(made):
            raise UserError(f"data={name}: there are no records in {root}.")
        return made
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        told = ", ".join(f"{key}={value!r}" for key, value in options.items() if key != "download")
        raise UserError(
            f"data={name} cannot be read from {root}: {' '.join(str(error).split())} Where there "
            f"is a network, torchvision.datasets.{cls.__name__}({str(root)!r}, {told}, "
            "download=True) puts the files there."
        ) from error

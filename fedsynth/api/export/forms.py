"""The forms of an export: the data files that each form writes, and how two of them compare.

A form's files follow from the release alone, so that a reader makes them again and compares.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedsynth.api.export.source import LABEL, Source
from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.data.formats.table_file import arrow
from fedsynth.data.tables import to_csv
from fedsynth.storage.pictures import grey_or_colour, png

Files = Iterator[tuple[str, bytes]]  # relative path and content
NAME_LENGTH = 60  # characters of a class name in the name of a folder
IMAGE, TABLE, MODEL = DataKind.IMAGE.value, DataKind.TABLE.value, "model"


@dataclass(frozen=True)
class Form:
    """One form of an export.

    Attributes:
        kinds: The kinds of release that it can hold.
        files: Yields the data files of a release.
        content: The comparable content of one such file; equal bytes need no comparison.
        glob: The files that hold the records, for the header of the card.
    """

    kinds: tuple[str, ...]
    files: Callable[[Source], Files]
    content: Callable[[bytes], Any]
    glob: str


def form_of(name: str, source: Source) -> Form:
    """The form of this name, if it can hold the release.

    Raises:
        UserError: There is no such form, or it cannot.
    """
    if name not in FORMS:
        raise unknown("form", name, FORMS)
    form = FORMS[name]
    if source.kind not in form.kinds:
        fitting = [key for key, each in FORMS.items() if source.kind in each.kinds]
        raise UserError(
            f"form {name!r} cannot hold {source.path.name}, a release of kind {source.kind}. "
            f"Allowed: {', '.join(fitting)}."
        )
    return form


def losses(name: str, source: Source) -> list[str]:
    """The parts of a release that a form does not keep, in sentences."""
    if source.kind == MODEL or name == "torch":
        return []
    released, found = source.records(), []
    if source.kind == TABLE:
        found.append("Numbers have six digits, and values outside the stated ranges are clipped.")
    elif name in ("png-folder", "hf"):
        pixels = released.pixels()
        outside = float(((pixels < 0) | (pixels > 1)).float().mean()) if pixels.numel() else 0.0
        found.append(
            f"A PNG has 8 bits per value: values were clipped to 0 to 1 ({outside:.1%} of them lay "
            "outside) and rounded."
        )
    if released.soft is not None:
        found.append("The probabilities of all classes (soft labels) are left out.")
    return found


def class_folder(label: int, name: str, classes: int) -> str:
    """The folder of a class; folders in order of their names are in order of the labels.

    >>> class_folder(3, "cat or dog", 12)
    '03_cat_or_dog'
    """
    number = str(label).zfill(len(str(classes - 1)))
    safe = re.sub(r"[^A-Za-z0-9-]+", "_", name)[:NAME_LENGTH].strip("_")
    return number if safe in ("", str(label)) else f"{number}_{safe}"


def _png_files(source: Source) -> Files:
    released, names = source.records(), source.class_names
    digits = len(str(max(0, len(released.labels) - 1)))
    for number, (picture, label) in enumerate(
        zip(_pictures(source), released.labels.tolist(), strict=True)
    ):
        folder = class_folder(label, names[label], len(names))
        yield f"images/{folder}/{str(number).zfill(digits)}.png", picture


def _pictures(source: Source) -> Iterator[bytes]:
    for image in source.records().images.split(1):
        (shown,) = np.rint(grey_or_colour(image) * 255).astype(np.uint8)
        yield png(shown[:, :, 0] if shown.shape[2] == 1 else shown)


def _pixels(data: bytes) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        return picture.mode, picture.size, picture.tobytes()


def _csv_files(source: Source) -> Files:
    frame, released = source.frame(), source.records()
    if source.kind == TABLE:
        yield "data.csv", to_csv(source.info, released.images, released.labels).encode()
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(frame.columns)
    for pixels, label in zip(
        np.asarray(released.pixels()).reshape(len(frame), -1), frame[LABEL], strict=True
    ):
        writer.writerow([*map(str, pixels), label])  # the shortest text of each float32
    yield "data.csv", text.getvalue().encode()


def _parquet_files(source: Source) -> Files:
    pyarrow = arrow("the form parquet")
    yield "data.parquet", _parquet(pyarrow.Table.from_pandas(source.frame(), preserve_index=False))


def _parquet(table: Any) -> bytes:
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _rows(data: bytes) -> Any:
    arrow("a Parquet file")
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(data))
    features = json.loads((table.schema.metadata or {}).get(b"huggingface", b"null"))
    return table.schema.names, list(map(str, table.schema.types)), table.to_pylist(), features


def _hf_files(source: Source) -> Files:
    """One Parquet file with the types of its columns as the package `datasets` states them."""
    pyarrow = arrow("the form hf")
    columns: dict[str, Any] = {}
    features: dict[str, Any] = {}
    if source.kind == IMAGE:
        cells = [{"bytes": picture, "path": None} for picture in _pictures(source)]
        stored = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        columns["image"] = pyarrow.array(cells, stored)
        features["image"] = {"_type": "Image"}
    else:
        frame = source.frame()
        for column in source.columns:
            kind = "string" if column.categories else "int64" if column.whole else "float64"
            columns[column.name] = pyarrow.array(
                frame[column.name].tolist(), pyarrow.type_for_alias(kind)
            )
            features[column.name] = {"dtype": kind, "_type": "Value"}
    columns[LABEL] = pyarrow.array(source.records().labels.tolist(), pyarrow.int64())
    features[LABEL] = {"names": source.class_names, "_type": "ClassLabel"}
    facts = json.dumps({"info": {"features": features}})
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": facts})
    yield "data/train-00000-of-00001.parquet", _parquet(table)


def _torch_files(source: Source) -> Files:
    """The arrays of the release, to the bit, as safetensors: read without running any code."""
    _need_safetensors()
    from safetensors.torch import save

    header = {"format": "pt", "release": source.verdict.body["release"]["job"]}
    if isinstance(source.outcome, ReleasedModel):
        arrays = dict(source.outcome.state)
        header |= {"network": source.outcome.network, "width": str(source.outcome.width)}
        name = "model.safetensors"
    else:
        arrays = source.outcome.to_arrays()
        header["class_names"] = json.dumps(source.class_names)
        name = "data.safetensors"
    yield name, save({key: value.contiguous().clone() for key, value in arrays.items()}, header)


def _tensors(data: bytes) -> Any:
    """Header without places, and the arrays as bytes."""
    _need_safetensors()
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        arrays = {key: _bits(value) for key, value in load(data).items()}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]).get("__metadata__"), arrays


def _bits(value: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(value.dtype), tuple(value.shape), np.asarray(value).tobytes()


def _need_safetensors() -> None:
    if importlib.util.find_spec("safetensors") is None:
        raise UserError(
            "the form torch needs safetensors, which is not installed: pip install safetensors."
        )


FORMS = {
    "png-folder": Form((IMAGE,), _png_files, _pixels, "images/**"),
    "csv": Form((IMAGE, TABLE), _csv_files, bytes, "data.csv"),
    "parquet": Form((IMAGE, TABLE), _parquet_files, _rows, "data.parquet"),
    "torch": Form((IMAGE, TABLE, MODEL), _torch_files, _tensors, ""),
    "hf": Form((IMAGE, TABLE), _hf_files, _rows, "data/train-*.parquet"),
}

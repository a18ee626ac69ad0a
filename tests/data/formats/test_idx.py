"""IDX files are read by their definition, and other content is refused."""

from __future__ import annotations

import pytest
import tiny_data as tiny

from fedsynth.core.errors import UserError
from fedsynth.data.formats import idx


def test_idx_files_are_read_as_they_are_defined():
    name = "train-images-idx3-ubyte"
    images = idx.parse_images(tiny.CONTENT[name])
    assert images.shape == (6, 1, 2, 2)
    for i, row, column in [(0, 0, 0), (0, 1, 0), (5, 1, 1)]:
        assert images[i, 0, row, column] == tiny.CONTENT[name][16 + 4 * i + 2 * row + column]
    labels = idx.parse_labels(tiny.CONTENT["train-labels-idx1-ubyte"])
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]
    for parse, content in [
        (idx.parse_images, tiny.idx_labels(20)),
        (idx.parse_labels, tiny.idx_images(3, 0)),
        (idx.parse_images, tiny.CONTENT[name][:-1]),
        (idx.parse_labels, tiny.idx_labels(5) + b"x"),
    ]:
        with pytest.raises(UserError, match="not an IDX file"):
            parse(content)

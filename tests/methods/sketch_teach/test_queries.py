"""Tests of the queries against their definitions, and of the bound on one record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.data.records import Records
from fedsynth.methods.sketch_teach.queries import (
    CELLS,
    COMMON,
    MEANS,
    QUERIES,
    SPREADS,
    Query,
    nearest,
)
from fedsynth.methods.sketch_teach.representation import Sketch

CLASSES = (3, 0, 5)


def some_records(n: int = 12, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 28, 28), generator=generator, dtype=torch.uint8)
    images[0] = 0
    images[1] = 255
    return Records(images, torch.tensor([3, 0, 5, 7])[torch.arange(n) % 4])


def make_query(kind: str, deskew: bool = False, radius: float = 0.2, seed: int = 1) -> Query:
    sketch = Sketch(4, deskew, triangle=True)
    if kind == MEANS:
        return Query(kind, sketch, CLASSES, {})
    generator = torch.Generator().manual_seed(seed)
    cells, r = (2, 5) if kind == CELLS else (1, 5)
    public = {
        "means": 0.3 * torch.rand(3, sketch.width, generator=generator),
        "basis": torch.linalg.qr(torch.randn(sketch.width, r, generator=generator))[0],
        "radii": radius * (1 + torch.rand(3, cells, generator=generator)),
        "centres": 0.1 * torch.randn(3, cells, r, generator=generator),
    }
    return Query(kind, sketch, CLASSES, public)


@given(st.integers(0, 1000), st.sampled_from(QUERIES), st.booleans(), st.floats(1e-3, 3.0))
@settings(max_examples=40, deadline=None)
def test_no_record_contributes_more_than_the_bound(
    seed: int, kind: str, deskew: bool, radius: float
) -> None:
    query, records = make_query(kind, deskew, radius, seed), some_records(8, seed)
    if kind == MEANS:
        norms = query.points_and_counts(records.pixels()).double().norm(dim=1)
    else:
        rows, groups = query.grouped_rows(records)
        assert rows.shape == (8, query.shape[-1])
        assert int(groups.max()) < query.shape[0]
        norms = rows.double().square().sum(1)  # of the outer product with itself
    assert float(norms.max()) <= query.bound * (1 + 1e-6)
    if radius < 0.05:
        assert float(norms.max()) == pytest.approx(query.bound, rel=0.2)


@pytest.mark.parametrize("kind", [COMMON, SPREADS, CELLS])
def test_a_row_is_the_clipped_offset_from_the_centre(kind: str) -> None:
    query, records = make_query(kind), some_records()
    public, points = query.public, query.sketch.points(records.pixels())
    rows, groups = query.grouped_rows(records)
    for point, label, row, group in zip(points, records.labels.tolist(), rows, groups, strict=True):
        if label not in CLASSES:
            assert int(group) == -1
            assert not row.any()
            continue
        class_index = CLASSES.index(label)
        offset = (point - public["means"][class_index]) @ public["basis"]
        cell = 0
        if kind == CELLS:
            offsets = offset - public["centres"][class_index]
            cell = int(offsets.norm(dim=1).argmin())
            offset = offsets[cell]
        offset = offset / public["radii"][class_index, cell]
        offset = offset / max(1.0, float(offset.norm()))
        if kind == CELLS:
            offset = torch.cat([offset, torch.tensor([0.5])])
        torch.testing.assert_close(row, offset, rtol=1e-4, atol=1e-5)
        assert int(group) == {COMMON: 0, SPREADS: class_index, CELLS: 2 * class_index + cell}[kind]


@pytest.mark.parametrize("kind", [COMMON, SPREADS, CELLS])
def test_a_row_depends_on_its_own_record_only(kind: str) -> None:
    query, records = make_query(kind), some_records()
    rows, groups = query.grouped_rows(records)
    for i in (0, 3, 7):
        alone = Records(records.images[i : i + 1], records.labels[i : i + 1])
        row, group = query.grouped_rows(alone)
        torch.testing.assert_close(row[0], rows[i], rtol=1e-4, atol=1e-6)
        assert group[0] == groups[i]


def test_records_of_other_classes_give_rows_without_a_group() -> None:
    others = Records(torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([7, 7]))
    none = Records(torch.zeros(0, 1, 28, 28, dtype=torch.uint8), torch.zeros(0).long())
    for records in (others, none):
        rows, groups = make_query(SPREADS).grouped_rows(records)
        assert rows.shape == (len(records.labels), 5)
        assert (groups == -1).all()


def broken(public: dict[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """The public arrays with one missing, too many, too short, too long or of another type; any
    number of directions is valid."""
    yield {**public, "more": torch.zeros(1)}
    for name, value in public.items():
        yield {k: v for k, v in public.items() if k != name}
        yield {**public, name: value.double()}
        for dim in range(1 if name == "basis" else value.dim()):
            yield {**public, name: value.narrow(dim, 0, value.shape[dim] - 1)}
            yield {**public, name: torch.cat([value, value.narrow(dim, 0, 1)], dim)}


@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_with_malformed_arrays_is_refused(kind: str) -> None:
    """A missing row would otherwise make only some records fail."""
    complete, cells = make_query(kind), 2 if kind == CELLS else 1
    public = {k: v for k, v in complete.public.items() if kind == CELLS or k != "centres"}
    dataclasses.replace(complete, public=public).check_shapes(cells)
    for wrong in broken(public):
        with pytest.raises(UserError, match=f"sent query '{kind}' with "):
            dataclasses.replace(complete, public=wrong).check_shapes(cells)


def test_shapes_are_those_of_the_answers() -> None:
    width = make_query(MEANS).sketch.width
    assert make_query(MEANS).shape == (3, width + 1)
    assert make_query(COMMON).shape == (1, 5, 5)
    assert make_query(SPREADS).shape == (3, 5, 5)
    assert make_query(CELLS).shape == (6, 6, 6)
    assert [make_query(kind).number for kind in QUERIES] == [0, 1, 2, 3]


def test_nearest_of_shared_or_own_centres() -> None:
    points = torch.tensor([[0.0, 1.0], [2.0, 2.0]])
    centres = torch.tensor([[0.0, 0.0], [3.0, 2.0]])
    for given_centres in (centres, centres.expand(2, 2, 2)):
        cell, offset = nearest(points, given_centres)
        assert cell.tolist() == [0, 1]
        assert offset.tolist() == [[0.0, 1.0], [-1.0, 0.0]]

"""The sketch's questions against their definitions, and what one record may say to each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.methods.sketch_teach.queries import (
    CELLS,
    COMMON,
    MEANS,
    QUESTIONS,
    SPREADS,
    Query,
    nearest,
)
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.privacy.party_data import Records

CLASSES = (3, 0, 5)


def some_records(n: int = 12, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 28, 28), generator=generator, dtype=torch.uint8)
    images[0] = 0
    images[1] = 255
    return Records(images, torch.tensor([3, 0, 5, 7])[torch.arange(n) % 4])


def asked(kind: str, upright: bool = False, radius: float = 0.2, seed: int = 1) -> Query:
    sketch = Sketch(4, upright, corner=True)
    if kind == MEANS:
        return Query(kind, sketch, CLASSES, {})
    generator = torch.Generator().manual_seed(seed)
    cells, r = (2, 5) if kind == CELLS else (1, 5)
    known = {
        "means": 0.3 * torch.rand(3, sketch.width, generator=generator),
        "basis": torch.linalg.qr(torch.randn(sketch.width, r, generator=generator))[0],
        "radii": radius * (1 + torch.rand(3, cells, generator=generator)),
        "centres": 0.1 * torch.randn(3, cells, r, generator=generator),
    }
    return Query(kind, sketch, CLASSES, known)


@given(st.integers(0, 1000), st.sampled_from(QUESTIONS), st.booleans(), st.floats(1e-3, 3.0))
@settings(max_examples=40, deadline=None)
def test_no_record_says_more_than_the_bound(
    seed: int, kind: str, upright: bool, radius: float
) -> None:
    question, records = asked(kind, upright, radius, seed), some_records(8, seed)
    if kind == MEANS:
        norms = question.counted(records.pixels()).double().norm(dim=1)
    else:
        rows, groups = question.grouped(records)
        assert rows.shape == (8, question.shape[-1])
        assert int(groups.max()) < question.shape[0]
        norms = rows.double().square().sum(1)  # of the outer product with itself
    assert float(norms.max()) <= question.bound * (1 + 1e-6)
    if radius < 0.05:
        assert float(norms.max()) == pytest.approx(question.bound, rel=0.2)


@pytest.mark.parametrize("kind", [COMMON, SPREADS, CELLS])
def test_a_row_is_the_clipped_way_from_the_centre_of_the_record(kind: str) -> None:
    question, records = asked(kind), some_records()
    known, points = question.known, question.sketch.points(records.pixels())
    rows, groups = question.grouped(records)
    for point, name, row, group in zip(points, records.labels.tolist(), rows, groups, strict=True):
        if name not in CLASSES:
            assert int(group) == -1
            assert not row.any()
            continue
        place = CLASSES.index(name)
        way = (point - known["means"][place]) @ known["basis"]
        cell = 0
        if kind == CELLS:
            ways = way - known["centres"][place]
            cell = int(ways.norm(dim=1).argmin())
            way = ways[cell]
        way = way / known["radii"][place, cell]
        way = way / max(1.0, float(way.norm()))
        if kind == CELLS:
            way = torch.cat([way, torch.tensor([0.5])])
        torch.testing.assert_close(row, way, rtol=1e-4, atol=1e-5)
        assert int(group) == {COMMON: 0, SPREADS: place, CELLS: 2 * place + cell}[kind]


@pytest.mark.parametrize("kind", [COMMON, SPREADS, CELLS])
def test_what_a_record_says_depends_on_no_other(kind: str) -> None:
    question, records = asked(kind), some_records()
    rows, groups = question.grouped(records)
    for i in (0, 3, 7):
        alone = Records(records.images[i : i + 1], records.labels[i : i + 1])
        row, group = question.grouped(alone)
        torch.testing.assert_close(row[0], rows[i], rtol=1e-4, atol=1e-6)
        assert group[0] == groups[i]


def test_a_party_without_records_of_the_classes_answers_all_the_same() -> None:
    others = Records(torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([7, 7]))
    none = Records(torch.zeros(0, 1, 28, 28, dtype=torch.uint8), torch.zeros(0).long())
    for records in (others, none):
        rows, groups = asked(SPREADS).grouped(records)
        assert rows.shape == (len(records.labels), 5)
        assert (groups == -1).all()


def broken(known: dict[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """What a question knows, with something missing, too short, too long, too much or of another
    type. Any number of directions will do."""
    yield {**known, "more": torch.zeros(1)}
    for name, value in known.items():
        yield {k: v for k, v in known.items() if k != name}
        yield {**known, name: value.double()}
        for dim in range(1 if name == "basis" else value.dim()):
            yield {**known, name: value.narrow(dim, 0, value.shape[dim] - 1)}
            yield {**known, name: torch.cat([value, value.narrow(dim, 0, 1)], dim)}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_that_is_not_whole_is_refused(kind: str) -> None:
    """Where a row is missing, only some records would notice."""
    whole, cells = asked(kind), 2 if kind == CELLS else 1
    known = {k: v for k, v in whole.known.items() if kind == CELLS or k != "centres"}
    dataclasses.replace(whole, known=known).require_whole(cells)
    for wrong in broken(known):
        with pytest.raises(UserError, match=f"asks '{kind}' with "):
            dataclasses.replace(whole, known=wrong).require_whole(cells)


def test_shapes_are_those_of_the_answers() -> None:
    width = asked(MEANS).sketch.width
    assert asked(MEANS).shape == (3, width + 1)
    assert asked(COMMON).shape == (1, 5, 5)
    assert asked(SPREADS).shape == (3, 5, 5)
    assert asked(CELLS).shape == (6, 6, 6)
    assert [asked(kind).number for kind in QUESTIONS] == [0, 1, 2, 3]


def test_the_nearest_of_shared_or_own_centres() -> None:
    points = torch.tensor([[0.0, 1.0], [2.0, 2.0]])
    centres = torch.tensor([[0.0, 0.0], [3.0, 2.0]])
    for given_centres in (centres, centres.expand(2, 2, 2)):
        cell, apart = nearest(points, given_centres)
        assert cell.tolist() == [0, 1]
        assert apart.tolist() == [[0.0, 1.0], [-1.0, 0.0]]

"""Values computed once and kept: read back, computed anew after damage, complete or absent."""

from __future__ import annotations

import json

import pytest
import torch

from fedsynth.storage.disk_cache import SOURCE_NOTE, build_once, file_stem, get_or_compute


def kept(path, calls: list[int]) -> int:
    """A number kept at `path`; each computation is one more of `calls`."""

    def compute() -> int:
        calls.append(1)
        return 41 + len(calls)

    return get_or_compute(
        path,
        compute,
        read=json.loads,
        write=lambda value: json.dumps(value).encode(),
        damage=(ValueError,),
    )


def test_a_value_is_computed_once_and_again_after_damage(tmp_path):
    path, calls = tmp_path / "folder" / "value", []
    assert [kept(path, calls) for _ in range(3)] == [42, 42, 42]
    path.write_bytes(b"{")
    assert [kept(path, calls) for _ in range(2)] == [43, 43]
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    calls: list[int] = []
    assert [kept(tmp_path / "file" / "value", calls) for _ in range(2)] == [42, 43]


def test_a_folder_is_built_once_per_source(tmp_path):
    folder, built = tmp_path / "prepared", []

    def build(draft) -> None:
        built.append(draft)
        (draft / f"part-{len(built)}").write_bytes(b"")

    for source in ("a", "a", "b"):
        build_once(folder, {"source": source}, build)
    assert sorted(p.name for p in folder.iterdir()) == [SOURCE_NOTE, "part-2"]
    assert len(built) == 2


def test_a_build_that_fails_leaves_the_former_folder_and_no_draft(tmp_path):
    folder = tmp_path / "prepared"
    build_once(folder, {"source": "a"}, lambda _: None)

    def fail(draft) -> None:
        (draft / "half").write_bytes(b"")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build_once(folder, {"source": "b"}, fail)
    assert [p.name for p in folder.iterdir()] == [SOURCE_NOTE]
    assert {p.name for p in tmp_path.iterdir()} == {"prepared", "prepared.lock"}


def test_names_differ_with_everything_that_a_value_depends_on():
    values = torch.arange(6)
    stems = {
        file_stem("a", [values], 1),
        file_stem("b", [values], 1),
        file_stem("a", [values.reshape(2, 3)], 1),
        file_stem("a", [values.int()], 1),
        file_stem("a", [values + 1], 1),
        file_stem("a", [values], 2),
    }
    assert len(stems) == 6
    assert file_stem("a/b c", [values]).startswith("a_b_c-")

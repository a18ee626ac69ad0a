"""Figures are written as files of each kind, and embedded for light, dark and narrow screens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from report_pages import context

from fedsynth.report.figure_files import embedded
from fedsynth.report.figures import LIGHT, Theme, grid
from fedsynth.storage.run_directory import RunDirectory

KINDS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def drawn(theme: Theme) -> Figure:
    figure, (panel,) = grid(1, 1, (2, 2), theme)
    panel.plot([0, 1], color=theme.methods[0])
    return figure


def wide(theme: Theme) -> Figure:
    figure = drawn(theme)
    figure.set_size_inches(6, 2)
    return figure


def test_a_figure_is_written_in_each_kind_and_twice_the_same(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    files = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        inside = replace(context(run), folder=folder, figure_kinds=tuple(KINDS))
        picture = embedded(inside, "line", "a line", wide, drawn)
        assert picture is not None
        assert picture.file == "figures/line"
        files.append([(folder / f"figures/line.{kind}").read_bytes() for kind in KINDS])
        for kind, start in KINDS.items():
            assert (folder / f"figures/line.{kind}").read_bytes().startswith(start)
        variants = {picture.data, picture.dark, picture.narrow, picture.narrow_dark}
        assert len(variants) == 4
        assert picture.data == (folder / "figures/line.svg").read_bytes()
        assert LIGHT.methods[0].lower().encode() in picture.data
    assert files[0] == files[1]


def test_without_a_figure_there_is_no_file(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    assert embedded(context(run), "none", "nothing", lambda _theme: None) is None
    assert not (run.path / "figures").exists()

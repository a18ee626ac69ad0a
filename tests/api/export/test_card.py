"""Cards: the header, the promises of the certificate, and the first line of what has none."""

from __future__ import annotations

import json

import exported
import pytest
import yaml

from fedsynth.api.export.card import card, escaped, facts, sdv_metadata
from fedsynth.api.export.source import Source
from fedsynth.engine.base import Engine
from fedsynth.privacy.certificate.words import explanation


@pytest.fixture(scope="module")
def sources(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """A release of each kind."""
    made = exported.released(tmp_path_factory.mktemp("releases"), here)
    return {kind: Source.read(path) for kind, path in made.items()}


def read(form: str, source: Source) -> tuple[dict, str]:
    """Header and text of a card."""
    _, header, text = card(form, source).decode().split("---\n", 2)
    return yaml.safe_load(header), text.strip()


@pytest.mark.parametrize(("kind", "form"), [("image", "hf"), ("table", "csv"), ("model", "torch")])
def test_a_card_says_every_promise_and_assumption(
    sources: dict[str, Source], kind: str, form: str
) -> None:
    header, text = read(form, sources[kind])
    for line in explanation(sources[kind].verdict):
        if not line.startswith(("treated", "key of", "signed", "self-consistent")):
            assert escaped(line) in text, line
    for fact in sources[kind].verdict.body["assumes"]:
        assert escaped(fact.rstrip(".")) in text
    assert text.startswith("# ")
    assert "differential-privacy" in header["tags"]
    for words in ("unit record", "delta=0.001", "fedsynth verify FOLDER", "None is stated"):
        assert words in text
    assert ("configs" in header) == (kind != "model")


def test_a_reference_without_privacy_says_so_first(sources: dict[str, Source]) -> None:
    header, text = read("csv", sources["reference"])
    first = text.splitlines()[0]
    assert first.startswith("> **This is a reference without privacy")
    assert "must not be published" in first
    assert header["pretty_name"].startswith("NO PRIVACY: ")
    assert "differential-privacy" not in header["tags"]


def test_facts_for_programs(sources: dict[str, Source]) -> None:
    content = json.loads(facts("png-folder", sources["image"]))
    assert content["scale"].startswith("0 is black and 1 is white")
    assert len(content["class_names"]) == sources["image"].data["classes"]
    assert "8 bits" in content["not_kept"][0]


def test_sdv_is_told_the_columns_of_the_schema(sources: dict[str, Source]) -> None:
    content = json.loads(sdv_metadata(sources["table"]))
    assert content["METADATA_SPEC_VERSION"] == "V1"
    columns = content["tables"]["data"]["columns"]
    for column in sources["table"].columns:
        kind = "categorical" if column.categories else "numerical"
        assert columns[column.name]["sdtype"] == kind
    assert list(columns) == [*(c.name for c in sources["table"].columns), "label"]


def test_names_cannot_write_markup() -> None:
    assert escaped("a\n# b <script>|*") == r"a \# b \<script\>\|\*"

"""The documents of an export: the card, the facts for programs, and a table's SDV metadata."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from fedsynth.api.export.forms import FORMS, MODEL, TABLE, losses
from fedsynth.api.export.source import LABEL, Source
from fedsynth.privacy.certificate.words import explanation

EXPORT_FORM = "fedsynth export 1"
NO_NOISE = (
    "This release has no privacy: its epsilon is infinite towards every observer that its "
    "certificate names. It must not be published."
)
SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
SCALE = (
    "0 is black and 1 is white; a PNG stores the value times 255. Noise may put released values "
    "outside 0 to 1."
)
TABLE_SCALE = "each column has the unit of its schema; `data.safetensors` maps ranges to 0 to 1."


def facts(name: str, source: Source) -> bytes:
    """`export.json`: the form, the class names, the scale, and what the form does not keep."""
    content: dict[str, Any] = {
        "form": EXPORT_FORM,
        "as": name,
        "release": source.path.stem,
        "job": source.verdict.body["release"]["job"],
        "data": source.data["name"],
        "kind": source.kind,
        "record_shape": source.data["record_shape"],
        "class_names": source.class_names,
        "not_kept": losses(name, source),
    }
    if source.kind != MODEL:
        content["scale"] = TABLE_SCALE if source.kind == TABLE else SCALE
    return _json(content)


def sdv_metadata(source: Source) -> bytes:
    """`metadata.json`: the columns of a table in SDV's form V1."""
    columns: dict[str, Any] = {}
    for column in source.columns:
        if column.categories:
            columns[column.name] = {"sdtype": "categorical"}
        else:
            kind = "Int64" if column.whole else "Float"
            columns[column.name] = {"sdtype": "numerical", "computer_representation": kind}
    columns[LABEL] = {"sdtype": "categorical"}
    table = {"columns": columns, "column_relationships": []}
    return _json({"METADATA_SPEC_VERSION": "V1", "tables": {"data": table}, "relationships": []})


def card(name: str, source: Source) -> bytes:
    """`README.md`: the card of the data set or model, with the header that Hugging Face reads."""
    body = source.verdict.body
    lines = explanation(source.verdict)
    promises = [line for line in lines if line.startswith("towards ")]
    public = [line for line in lines if line.startswith("treated as public: ")]
    signers = [line for line in lines if line.startswith(("signed, ", "self-consistent", "key of"))]
    others = [x for x in lines[1:] if x not in (*promises, *public, *signers)]
    made = [lines[0], f"Method: {body['method']['summary'] or body['method']['name']}"]
    made += (
        [f"Source of the method: {body['method']['source']}"] if body["method"]["source"] else []
    )
    made += [f"Created {body['created']} with {_versions(body['software'])}"]
    header = yaml.safe_dump(_header(name, source), sort_keys=False, allow_unicode=True)
    warning = _warning(source)
    text = [f"---\n{header}---\n"]
    text += [f"> **{escaped(warning)}**\n"] if warning else []
    text += [f"# {escaped(_title(source))}\n", f"{_what(name, source)}\n"]
    text += [_section("How it was made", made)]
    text += [_section("What is promised, and to whom", promises or ["Nothing."])]
    text += [_section("What the promise rests on", others)]
    text += [_section("Treated as public", [p.partition(": ")[2] for p in public] or ["Nothing."])]
    text += [_section("Limits", _limits(name, source))]
    text += [
        "## How to verify\n\n    fedsynth verify FOLDER --keys KEYS\n\n"
        "checks the signatures, computes every epsilon again and compares the data files with the "
        f"certified release, `certified/{source.path.name}`. KEYS is a file with the public keys "
        "that the parties gave you; without it, who signed is not established. This card is not "
        "covered by any signature.\n",
        "## Licence\n\nNone is stated. Whether and under which licence this may be passed on is "
        "for the holder of the data to say.\n",
    ]
    return "\n".join(text).encode()


def escaped(text: str) -> str:
    """Text as one line in which Markdown and HTML have no effect.

    >>> escaped("a_b <i>")
    'a\\\\_b \\\\<i\\\\>'
    """
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _header(name: str, source: Source) -> dict[str, Any]:
    method = source.verdict.body["method"]["name"]
    tags = ["synthetic-data", "differential-privacy", "fedsynth", method]
    if source.without_privacy:
        tags = ["synthetic-data", "no-privacy", "fedsynth", method]
    task = "tabular-classification" if source.data["kind"] == TABLE else "image-classification"
    if source.kind == MODEL:
        return {"tags": tags, "pipeline_tag": task}
    count = len(source.records().labels)
    size = next((text for limit, text in SIZES.items() if count < limit), "n>1M")
    header = {
        "pretty_name": _title(source),
        "tags": tags,
        "task_categories": [task],
        "size_categories": [size],
    }
    if glob := FORMS[name].glob:
        files = [{"split": "train", "path": glob}]
        header["configs"] = [{"config_name": "default", "data_files": files}]
    return header


def _title(source: Source) -> str:
    body = source.verdict.body
    kind = "Model" if source.kind == MODEL else "Synthetic records"
    warning = "NO PRIVACY: " if source.without_privacy else ""
    return f"{warning}{kind} by {body['method']['name']} from {source.data['name']}"


def _warning(source: Source) -> str:
    body = source.verdict.body
    if not body["method"]["private"]:
        return str(body["processing"])
    return NO_NOISE if source.without_privacy else ""


def _what(name: str, source: Source) -> str:
    names = ", ".join(escaped(each) for each in source.class_names)
    shape = " x ".join(map(str, source.data["record_shape"]))
    if source.kind == MODEL:
        what = f"A classifier of records of shape {shape}."
    elif source.kind == TABLE:
        what = (
            f"{len(source.records().labels):,} rows of {len(source.columns)} columns and a class."
        )
    else:
        what = f"{len(source.records().labels):,} images of shape {shape}, each with its class."
    return (
        f"{what} Classes, in the order of their labels: {names}. Form: {name}. `privacy.json` is "
        "the certificate, `export.json` has class names and scale for programs."
    )


def _limits(name: str, source: Source) -> list[str]:
    found = [f"{loss} `certified/` holds the release unchanged." for loss in losses(name, source)]
    if source.kind != MODEL:
        stage = source.data["classes_of_stage"]
        if len(stage) < source.data["classes"]:
            names = ", ".join(escaped(source.class_names[label]) for label in stage)
            found.append(f"The stage of this release has the classes {names} only.")
        found.append("These are not real records: a statistic of them is not one of the data.")
    return [*found, "The promises end where the assumptions above do not hold."]


def _section(title: str, lines: list[str]) -> str:
    escape = (lambda text: text) if title == "Limits" else escaped
    return f"## {title}\n\n" + "".join(f"- {escape(line)}\n" for line in lines)


def _versions(software: dict[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in software.items())


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()

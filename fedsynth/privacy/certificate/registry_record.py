"""The record of a release for the registry of deployments: `registry.yaml`, from the certificate.

Every value repeats a fact of the certificate. The record is a draft: its status says so, and who
publishes a release checks names, region and sector before handing it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.plan import RECORD_CLASSES
from fedsynth.core.text import epsilon_text
from fedsynth.privacy.certificate.canonical import CertificateDamaged, read_number
from fedsynth.privacy.certificate.registry_schema import HIGHEST_TIER, problems_of, slug

__all__ = ["facts_of", "parsed_record", "problems_of", "registry_record", "registry_text"]

UNITS = {
    Unit.RECORD: "one record",
    Unit.USER: "one user: all records of one party",
}
NEIGHBOURS = {
    Relation.ADD_REMOVE: (
        "Two data sets are adjacent if one is the other with one unit more. Read as the "
        "replacement of one unit by another one, which is the adjacency of data sets with equal "
        "public counts, the same noise gives epsilon {replace_one}."
    ),
    Relation.REPLACE_ONE: (
        "Two data sets are adjacent if one is the other with one unit replaced. For the addition "
        "or removal of one unit the same noise gives epsilon {add_remove}."
    ),
}
SAME_CLASS = " The classes of records are public: a record and its replacement have the same class."


def registry_record(body: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a certificate, at the highest tier."""
    release, schema, method = body["release"], body["schema"], body["method"]
    headline = headline_of(body)
    version = body["software"].get("fedsynth", "")
    basic = {
        "name": f"{release['job']} stage {release['stage']} on {schema['data']['name']}",
        "data_curators": ["server of a fedsynth run"],
        "intended_use": "Training of classifiers, and study of the cost and the use of a release.",
        "data_product_type": (
            "Machine learning model" if schema["kind"] == "model" else "Synthetic data"
        ),
        "data_product_region": "None: the program does not know whom the data describe.",
        "description": _description(body),
        "publication_date": body["created"],
        "data_product_sector": "Technology",
    }
    return {
        "url_slug": slug(basic),
        "status": "Draft",
        "tier": HIGHEST_TIER,
        "deployment": {
            "basic": basic,
            "dp_variant": _variant(body),
            "privacy_loss": _loss(body, headline),
            "deployment_model": _model(body),
            "accounting": {
                "post_processing": body["processing"],
                "composition": _composition(body),
            },
            "implementation": _implementation(body),
            "administrative": {
                "sources": method["source"] or "None stated.",
                "notes": _notes(body),
                "registry_authors": [f"fedsynth {version}".strip()],
            },
        },
    }


def headline_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The guarantee that a record states: for the observer who sees most among those with a finite
    epsilon; an infinite one where there is none."""
    rows = body["derived"]["guarantee"]
    name = f"epsilon_{rows[0]['relation']}" if rows else ""
    finite = [row for row in rows if read_number(row[name]) < float("inf")]
    if not rows:
        return {"observer": "server", "unit": "record", "delta": 0.0, "relation": "add_remove"} | (
            dict.fromkeys(("epsilon_add_remove", "epsilon_replace_one"), "infinity")
        )
    ranked = sorted(finite or rows, key=_rank)
    return dict(ranked[0])


def _rank(row: Mapping[str, Any]) -> int:
    """Place of an observer: a server before the public, one that colludes last."""
    name = str(row["observer"])
    if "colluding" in name:
        return 3
    return 0 if name == "server" else 2 if name == "public" else 1


def _description(body: Mapping[str, Any]) -> str:
    release, schema = body["release"], body["schema"]
    parties = len(body["statements"]) + len(body["without_statement"])
    arrays = ", ".join(f"{n} {a['type']}{a['shape']}" for n, a in schema["arrays"].items())
    kind = "classifier" if schema["kind"] == "model" else "synthetic records with labels"
    many = "1 party" if parties == 1 else f"{parties:,} parties"
    return (
        f"A {kind} made by the method {body['method']['name']} from the records of {many}, stage "
        f"{release['stage']} of {release['stages']}. Arrays: {arrays}."
    )


def _variant(body: Mapping[str, Any]) -> dict[str, Any]:
    data = body["schema"]["data"]
    columns = ", ".join(_column_text(column) for column in data["columns"])
    return {
        "variant_name": "Approximate DP",
        "data_domain": (
            f"Records of shape {data['record_shape']} ({data['kind']}) with one of "
            f"{data['classes']} classes each" + (f"; columns: {columns}" if columns else "") + "."
        ),
        "unprotected_quantities": " ".join(f"{text.rstrip('.')}." for text in body["assumes"])
        or "None stated by the plan.",
    }


def _column_text(column: Mapping[str, Any]) -> str:
    if "categories" in column:
        return f"{column['name']} ({len(column['categories'])} categories)"
    return f"{column['name']} ({column['low']:g} to {column['high']:g})"


def _loss(body: Mapping[str, Any], headline: Mapping[str, Any]) -> dict[str, Any]:
    relation = Relation(headline["relation"])
    values = {r.value: epsilon_text(read_number(headline[f"epsilon_{r.value}"])) for r in Relation}
    lines = [
        f"{row['observer']}: epsilon {epsilon_text(read_number(row['epsilon_' + relation.value]))}"
        for row in body["derived"]["guarantee"]
    ]
    same_class = SAME_CLASS if RECORD_CLASSES in body["assumes"] else ""
    return {
        "privacy_unit": UNITS[Unit(headline["unit"])],
        "privacy_unit_details": NEIGHBOURS[relation].format(**values) + same_class,
        "privacy_parameters": {
            "epsilon": read_number(headline[f"epsilon_{relation.value}"]),
            "delta": headline["delta"],
        },
        "privacy_parameters_details": (
            f"The largest epsilon of any party, towards this observer: {headline['observer']}. "
            f"By observer: {'; '.join(lines) or 'none'}. Counted by privacy loss distributions."
        ),
    }


def _model(body: Mapping[str, Any]) -> dict[str, Any]:
    stages = body["release"]["stages"]
    sees = "; ".join(f"{row['observer']} ({row['sees']})" for row in body["derived"]["guarantee"])
    return {
        "model_name": "Federated",
        "model_name_details": (
            "Each party keeps its records and adds noise before it sends, as far as the list of "
            "actors does not say otherwise."
        ),
        "actors": (
            "Parties, which hold the records and are trusted with their own; and observers: "
            f"{sees or 'none'}. The server follows the protocol in what it publishes, and need not "
            f"be trusted beyond that. {body['secure_sum']}"
        ).strip(),
        "release_type": "One release" if stages == 1 else "Many releases",
        "release_type_details": (
            f"Stage {body['release']['stage']} of {stages}. Each party's ledger limits what it "
            "spends; other releases from the same records cost in addition."
        ),
        "data_source_type": "Static",
        "data_source_type_details": "The records of a party do not change during the run.",
        "access_type": "Non-interactive",
        "access_type_details": "Readers receive the release and cannot ask for more.",
    }


def _composition(body: Mapping[str, Any]) -> str:
    worst = {
        "; ".join(f"{m['uses']} x {m['words']}" for m in row["mechanisms"]) or "nothing"
        for row in body["derived"]["spendings"].values()
    }
    shown = sorted(worst)[:3]
    more = f" and {len(worst) - 3} more spendings" if len(worst) > 3 else ""
    return (
        "Sequential composition of each party's mechanisms, counted by privacy loss distributions "
        "and checked by Renyi accounting; a record lies at one party, so that parties compose in "
        f"parallel. Mechanisms: {' | '.join(shown)}{more}."
    )


def _implementation(body: Mapping[str, Any]) -> dict[str, Any]:
    noise, sampler = body["noise"], body["noise"]["sampler"]
    versions = ", ".join(f"{name} {version}" for name, version in body["software"].items())
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "Constants that scale the data come from the literature or a schema. Settings are not "
            "chosen by the program; a choice made on the private data is not charged."
        ),
        "mechanisms": (
            f"Gaussian mechanism. Sampler: {sampler['name']}. "
            f"Exact: {'; '.join(sampler['exact'])}. "
            f"Deviation: {sampler['deviation']}. Assumed: {'; '.join(sampler['assumed'])}. "
            f"{noise['words']} Timing is not hidden. Versions: {versions}."
        ),
        "justification": (
            "Noise is the least that the budget allows by the accountant. Mechanisms, sampler and "
            "accountants are tested against independent programs, published numbers and attacks."
        ),
    }


def _notes(body: Mapping[str, Any]) -> str:
    notes = [body["noise"]["words"]]
    if not body["method"]["private"]:
        notes.insert(0, "Not a private release: do not hand in this record.")
    notes.append("Beside this file lies the certificate from which every number can be recomputed.")
    return " ".join(notes)


def registry_text(body: Mapping[str, Any]) -> str:
    """The record as YAML."""
    return yaml.safe_dump(registry_record(body), sort_keys=False, allow_unicode=True, width=100)


def parsed_record(data: bytes, name: str) -> Any:
    """The record in a file.

    Raises:
        CertificateDamaged: The file is not YAML of plain values.
    """
    try:
        return yaml.safe_load(data.decode())
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise CertificateDamaged(f"{name} cannot be read as YAML.") from error


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record that must be those of the certificate."""
    deployment = record["deployment"]
    loss, parameters = deployment["privacy_loss"], deployment["privacy_loss"]["privacy_parameters"]
    return {
        "epsilon": f"{parameters['epsilon']:.5g}",
        "delta": f"{parameters['delta']:.5g}",
        "unit": loss["privacy_unit"],
        "type": deployment["basic"]["data_product_type"],
        "date": deployment["basic"]["publication_date"],
    }

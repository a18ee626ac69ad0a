"""A certificate is checked with nothing but its folder: every change is found and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import certified
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.privacy.accounting.events import gaussian, to_json
from fedsynth.privacy.certificate import CertificateDamaged, check, read
from fedsynth.privacy.certificate.check import certificate_of
from fedsynth.privacy.certificate.document import FORM, WITHOUT_AUDITS
from fedsynth.privacy.certificate.registry_record import registry_text

ONE_KEY = certified.forger()
QUICK = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def original(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The releases of a job whose three parties add shares of the noise."""
    out = tmp_path_factory.mktemp("released") / "run"
    job = certified.released("dp_merf_joint", out, here, "together", noise_at="distributed")
    return certified.folder_of(job)


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return certified.copied(original, tmp_path)


@pytest.fixture
def certificate(folder: Path) -> Path:
    """Its certificate."""
    return folder / "stage-1.privacy.json"


def keys_of(certificate: Path) -> dict[str, str]:
    """The keys that signed a certificate, by key."""
    return {signer.key: signer.name for signer in check(certificate).signers}


def problems(certificate: Path, trusted: dict[str, str] | None = None) -> tuple[str, ...]:
    """What a check finds; a file that cannot be read is found as well."""
    try:
        return check(certificate, trusted).problems
    except UserError as error:
        return (str(error),)


def test_a_release_is_found_to_be_what_its_certificate_says(certificate: Path) -> None:
    verdict = check(certificate)
    assert not verdict.problems
    assert [signer.name for signer in verdict.signers] == [
        "party 0",
        "party 1",
        "party 2",
        "server",
    ]
    assert not verdict.established
    assert check(certificate, keys_of(certificate)).established
    assert read(certificate.with_name("stage-1.npz")).body == verdict.body


@QUICK
@given(data=st.data())
def test_one_changed_byte_anywhere_is_found(folder: Path, data: st.DataObject) -> None:
    certificate = folder / "stage-1.privacy.json"
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = file.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    mask = data.draw(st.integers(1, 255))
    file.write_bytes(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :])
    try:
        assert problems(certificate)
    finally:
        file.write_bytes(content)
    assert not problems(certificate)


@QUICK
@given(data=st.data())
def test_one_altered_number_is_found(folder: Path, data: st.DataObject) -> None:
    """By the signature if it is that of the server; by who signed if a forger signs again."""
    certificate = folder / "stage-1.privacy.json"
    content, trusted = certificate.read_bytes(), keys_of(certificate)
    document = json.loads(content)
    numbers = [(p, v) for p, v in certified.leaves(document["body"]) if type(v) in (int, float)]
    place, value = data.draw(st.sampled_from(numbers))
    new = data.draw(st.sampled_from([value + 1, value * 2 + 1, -value - 1]))
    certified.put(document["body"], place, new)
    try:
        certificate.write_bytes(certified.rendered(document))
        assert problems(certificate)
        certified.forge(certificate, nothing)
        assert problems(certificate, trusted)
        if place[0] in ("derived", "files", "statements"):
            assert problems(certificate), place
    finally:
        certificate.write_bytes(content)


def nothing(_: object) -> None:
    """No change: the forger's signature alone."""


def without_line(number: int) -> Any:
    def change(statement: dict[str, Any]) -> None:
        del statement["ledger"]["entries"][number]

    return change


@pytest.mark.parametrize("method", ["dp_sgd_joint"])
def test_a_removed_entry_is_found_even_if_a_forger_signs(
    method: str, here: Engine, tmp_path: Path
) -> None:
    """A charge (line 0) is missed by the numbers, a record of a release (line 1) by the keys."""
    job = certified.released(method, tmp_path / "run", here, "together")
    certificate = certified.folder_of(job) / "model-1.privacy.json"
    trusted, content = keys_of(certificate), certificate.read_bytes()
    entries = json.loads(content)["body"]["statements"][0]["body"]["ledger"]["entries"]
    assert len(entries) > 2
    for line in (0, 1):
        certified.forge_statement(certificate, without_line(line))
        assert bool(problems(certificate)) == (line == 0)
        assert any("none of the keys" in text for text in problems(certificate, trusted))
        certificate.write_bytes(content)

    def cut(statement: dict[str, Any]) -> None:
        ledger = statement["ledger"]
        del ledger["entries"][-2:]  # a charge and the record of its release
        ledger["length"] -= 2
        ledger["head"] = ledger["entries"][-1]["hash"]

    certified.forge_statement(certificate, cut)
    assert any("derived" in text for text in problems(certificate))
    assert any("none of the keys" in text for text in problems(certificate, trusted))


def test_who_forges_everything_is_found_by_the_keys_alone(certificate: Path) -> None:
    """Signed ledger, statement and numbers agree; without a known key nothing contradicts them."""
    trusted = keys_of(certificate)
    certified.forge_statement(certificate, rewritten_event, complete=True)
    assert not problems(certificate)
    assert not check(certificate).established
    assert any("party 0 signed with" in text for text in problems(certificate, trusted))


def rewritten_event(statement: dict[str, Any]) -> None:
    statement["ledger"]["entries"][0]["event"] = to_json(gaussian(1e3))


def other_relation(statement: dict[str, Any]) -> None:
    statement["relation"] = "replace_one"


def sees_less(statement: dict[str, Any]) -> None:
    statement["views"][0]["sees"] = "nothing"


def more_shares(statement: dict[str, Any]) -> None:
    view = statement["views"][1]
    view["shares"] = 100
    view["sees"] = view["sees"].replace("3 or more", "100 or more")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rewritten_event, "derived"),
        (other_relation, "its relation is not that of its ledger"),
        (sees_less, "words on the observer"),
        (more_shares, "derived"),
    ],
)
def test_a_forged_statement_contradicts_itself(
    certificate: Path, change: certified.Change, words: str
) -> None:
    certified.forge_statement(certificate, change)
    assert any(words in text for text in problems(certificate))


def less_spent(body: dict[str, Any]) -> None:
    for row in body["derived"]["guarantee"]:
        row["epsilon_add_remove"] = 0.1


def one_party_less(body: dict[str, Any]) -> None:
    body["statements"].pop()


def called_private(body: dict[str, Any]) -> None:
    body["noise"] = {**body["noise"], "simulation": False, "sources": ["operating system entropy"]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (less_spent, "is not what the ledgers' events come to"),
        (one_party_less, "is not what the ledgers' events come to"),
        (called_private, "facts on noise"),
        (lambda body: body.update(processing="All is well."), "sentence on processing"),
        (lambda body: body["method"].update(private=False), "sentence on processing"),
        (lambda body: body["files"].pop("stage-1.npz"), "swapped"),
        (lambda body: body["files"].update({"../x": {}}), "missing"),
        (lambda body: body["schema"]["arrays"]["labels"].update(type="int8"), "arrays"),
        (lambda body: body.pop("assumes"), "fields of a certificate"),
        (lambda body: body["release"].update(stage="one"), "damaged"),
        (lambda body: body.update(statements=[]), "names no party"),
        (lambda body: body["audits"].update(scope="This release was audited."), "on audits"),
        (lambda body: body["audits"]["rows"][0].update(audited_epsilon=0.0), "audits are not"),
    ],
)
def test_a_forged_certificate_contradicts_the_parties(
    certificate: Path, change: certified.Change, words: str
) -> None:
    certified.forge(certificate, change)
    assert any(words in text for text in problems(certificate))


def test_a_certificate_of_the_form_before_audits_is_read(certificate: Path) -> None:
    def former(body: dict[str, Any]) -> None:
        del body["audits"]
        body["form"] = WITHOUT_AUDITS

    certified.forge(certificate, former)
    assert not problems(certificate)
    certified.forge(certificate, lambda body: body.update(form=FORM))
    assert any("fields of a certificate" in text for text in problems(certificate))


def test_a_registry_record_with_another_epsilon_is_found(certificate: Path) -> None:
    """Also if its hash is put into the certificate and a forger signs that."""
    registry = certificate.with_name("stage-1.registry.yaml")
    body = json.loads(certificate.read_bytes())["body"]
    less_spent(body)
    registry.write_text(registry_text(body))

    def change(body: dict[str, Any]) -> None:
        body["files"] = certified_files(certificate, body["files"])

    certified.forge(certificate, change)
    assert any("other numbers" in text for text in problems(certificate))


def certified_files(certificate: Path, names: Any) -> dict[str, Any]:
    """Sizes and hashes of files as they are now."""
    from fedsynth.privacy.certificate.document import file_facts

    return {name: file_facts(certificate.with_name(name)) for name in names}


def test_a_swapped_certificate_is_found(here: Engine, tmp_path: Path) -> None:
    job = certified.released("dp_merf", tmp_path / "run", here, "in_turn")
    folder = certified.folder_of(job)
    first, second = (folder / f"stage-{n}.privacy.json" for n in (1, 2))
    mine = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert any("swapped" in text for text in problems(first))
    first.write_bytes(mine)
    assert not problems(first)
    for name in ("npz", "png", "registry.yaml"):
        folder.joinpath(f"stage-1.{name}").unlink()
        assert any(f"stage-1.{name} is missing" in text for text in problems(first))
    moved = certified.copied(folder, tmp_path / "other").rename(
        folder.parent / "dp_merf-eps1-seed0"
    )
    assert any("not of dp_merf-eps1" in t for t in problems(moved / "stage-2.privacy.json"))


def test_only_keys_that_the_reader_names_establish_who_signed(certificate: Path) -> None:
    trusted = keys_of(certificate)
    exchanged = dict(zip(trusted, [*list(trusted.values())[1:], "party 0"], strict=True))
    assert any("which is the key of" in text for text in problems(certificate, exchanged))
    stranger = {certified.forger().public: ""}
    assert len(problems(certificate, stranger)) == 3  # the server's key was not asked about
    parties = {key: name for key, name in trusted.items() if name != "server"}
    verdict = check(certificate, parties)
    assert not verdict.problems
    assert [signer.name for signer in verdict.signers if not signer.known] == ["server"]


def test_two_parties_with_one_key_are_found(certificate: Path, monkeypatch) -> None:
    monkeypatch.setattr(certified, "forger", lambda *_: ONE_KEY)
    for position in (0, 1):
        certified.forge_statement(certificate, nothing, position)
    trusted = {
        ONE_KEY.public: "",
        **dict.fromkeys(keys_of(certificate), ""),
    }
    assert "two parties signed with one key." in problems(certificate, trusted)


def test_a_reference_says_in_words_that_it_is_not_private(here: Engine, tmp_path: Path) -> None:
    job = certified.released("gradient_matching", tmp_path / "run", here, "together")
    verdict = read(certified.folder_of(job) / "stage-1.npz")
    assert "epsilon is infinite" in verdict.body["processing"]
    assert {row["epsilon_add_remove"] for row in verdict.body["derived"]["guarantee"]} == {
        "infinity"
    }


def test_reading_a_damaged_release_raises(certificate: Path) -> None:
    certificate.with_name("stage-1.png").write_bytes(b"")
    with pytest.raises(CertificateDamaged, match=r"stage-1.png was changed"):
        read(certificate)


@pytest.mark.parametrize("name", ["stage-1.npz", "stage-1.registry.yaml", "stage-1.privacy.json"])
def test_the_certificate_of_any_file_of_a_release(name: str) -> None:
    assert certificate_of(Path("a") / name) == Path("a/stage-1.privacy.json")


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'{"body": 1, "key": NaN}\n'])
def test_other_files_are_no_certificates(certificate: Path, content: bytes) -> None:
    certificate.write_bytes(content)
    assert problems(certificate)

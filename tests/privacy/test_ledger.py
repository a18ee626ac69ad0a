"""The ledger: durable before it returns, chained, bounded by the budget, replayable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PUBLIC_VIEW
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed, gaussian, poisson, repeated
from fedsynth.privacy.ledger import (
    GENESIS,
    BudgetExceeded,
    Ledger,
    LedgerConflict,
    LedgerDamaged,
    read_charges,
    read_entries,
    total,
)
from fedsynth.privacy.ledger_head import EMPTY, HeadFile
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey

KEY = NoiseKey.from_seed(1, "party 3")
PARTY_KEY = PartyKey.of_owner(Path(), "party 3", 1)
BUDGET = Budget(epsilon=1.0, delta=1e-5)
STEP = poisson(0.01, gaussian(1.0))


def ledger(path: Path, budget: Budget = BUDGET, job: str = "job", key: NoiseKey = KEY) -> Ledger:
    return Ledger(
        path / "ledger.jsonl",
        party_key=PARTY_KEY,
        noise_key=key,
        job=job,
        party=3,
        budget=budget,
    )


def test_an_entry_says_what_was_spent_and_by_whom(tmp_path):
    ledger(tmp_path).reserve(
        repeated(STEP, 10), stage=2, label="release", digest="d", view=PUBLIC_VIEW
    )
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert (entry.seq, entry.job, entry.party, entry.stage) == (0, "job", 3, 2)
    assert (entry.label, entry.digest, entry.view, entry.prev) == (
        "release",
        "d",
        "public",
        GENESIS,
    )
    spent = epsilon(total([entry]), 1e-5, "pld")
    assert spent == pytest.approx(epsilon(repeated(STEP, 10), 1e-5, "pld"))


def test_the_same_request_is_found_again_and_not_charged_twice(tmp_path):
    book = ledger(tmp_path)
    first = book.reserve(STEP, stage=0, label="call 0", digest="a")
    assert book.reserve(STEP, stage=0, label="call 0", digest="a") == first
    assert ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a") == first
    other = book.reserve(STEP, stage=0, label="call 0", digest="b")
    assert other.hash != first.hash
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 2


def test_affordable_totals_that_a_later_one_covers_are_forgotten(tmp_path):
    """A long run without a plan compares each charge with one total, not with all former ones."""
    book = ledger(tmp_path, Budget(epsilon=100.0, delta=1e-5))
    for call in range(5):
        book.reserve(STEP, stage=0, label=f"call {call}", digest="a")
    assert [sum(allowed.values()) for allowed in book._allowed] == [5]


def test_the_same_request_with_another_event_is_refused(tmp_path):
    book = ledger(tmp_path)
    book.reserve(STEP, stage=0, label="call 0", digest="a")
    with pytest.raises(LedgerConflict, match="another event"):
        book.reserve(gaussian(5.0), stage=0, label="call 0", digest="a")


def test_a_lost_noise_key_ends_what_it_released(tmp_path):
    ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a")
    other = ledger(tmp_path, key=NoiseKey.from_seed(2, "party 3"))
    with pytest.raises(LedgerConflict, match="spend twice"):
        other.reserve(STEP, stage=0, label="call 0", digest="a")


def test_other_data_under_the_same_request_are_charged_anew(tmp_path):
    """A changed record gets other noise, and the difference of two answers is paid for."""
    first = ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a", data="before")
    other = ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a", data="after")
    assert other.hash != first.hash
    assert len(read_charges(tmp_path / "ledger.jsonl")) == 2
    for data, entry in (("before", first), ("after", other)):
        again = ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a", data=data)
        assert again == entry
    assert len(read_charges(tmp_path / "ledger.jsonl")) == 2


def test_ten_answers_on_ten_data_sets_do_not_cost_one(tmp_path):
    """The measured attack: change one record and ask again. The budget holds for two answers."""
    event = gaussian(6.0)
    budget = Budget(epsilon(repeated(event, 2), 1e-5, "pld"), 1e-5)
    answered = 0
    for change in range(10):
        try:
            ledger(tmp_path, budget).reserve(
                event, stage=0, label="call 0", digest="a", data=str(change), expected=event
            )
        except BudgetExceeded:
            continue
        answered += 1
    assert answered == len(read_charges(tmp_path / "ledger.jsonl")) == 2


def test_a_second_payload_for_one_request_is_refused(tmp_path):
    book = ledger(tmp_path)
    book.reserve(STEP, stage=0, label="call 0", digest="a", data="f")
    first = book.record_release("sha256:1", stage=0, digest="a", data="f")
    for again in (book, ledger(tmp_path)):
        assert again.record_release("sha256:1", stage=0, digest="a", data="f") == first
        with pytest.raises(LedgerConflict, match="with other values"):
            again.record_release("sha256:2", stage=0, digest="a", data="f")
    book.record_release("sha256:2", stage=0, digest="b", data="f")
    book.record_release("sha256:2", stage=0, digest="a", data="other records")
    kinds = [entry.kind for entry in read_entries(tmp_path / "ledger.jsonl")]
    assert kinds == ["charge", *["release"] * 3]


@pytest.mark.parametrize(
    "other",
    [
        Budget(100.0, 1e-5),
        Budget(float("inf"), 1e-5),
        Budget(1.0, 1e-3),
        Budget(1.0, 1e-5, unit=Unit.USER),
        Budget(1.0, 1e-5, relation=Relation.REPLACE_ONE),
        Budget(1.0, 1e-5, accounting="rdp"),
    ],
    ids=str,
)
def test_the_budget_of_a_job_is_that_of_its_first_entry(tmp_path, other):
    ledger(tmp_path).reserve(STEP, stage=0, label="call 0", digest="a")
    with pytest.raises(LedgerConflict, match="does not change"):
        ledger(tmp_path, other).reserve(STEP, stage=0, label="call 1", digest="a")
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 1
    ledger(tmp_path, other, job="another").reserve(STEP, stage=0, label="call 1", digest="a")


def test_jobs_share_a_chain_and_not_a_budget(tmp_path):
    """Each job has its own budget, and no replay of another job's request."""
    event = gaussian(6.0)
    budget = Budget(epsilon(event, 1e-5, "pld"), 1e-5)
    entries = [
        ledger(tmp_path, budget, job=job).reserve(event, stage=0, label="x", digest="a")
        for job in ("first", "second")
    ]
    assert [entry.seq for entry in entries] == [0, 1]
    for job in ("first", "second"):
        with pytest.raises(BudgetExceeded):
            ledger(tmp_path, budget, job=job).reserve(event, stage=0, label="y", digest="a")
    assert read_entries(tmp_path / "ledger.jsonl", "second") == entries[1:]


def test_a_lifetime_filter_sees_all_jobs_and_new_charges_only(tmp_path):
    seen: list[int] = []

    class AtMostTwo:
        def check(self, entries, event):
            seen.append(len(entries))
            if len(entries) >= 2:
                raise BudgetExceeded("the lifetime budget is spent")

    def book(job: str) -> Ledger:
        path = tmp_path / "ledger.jsonl"
        terms = {"noise_key": KEY, "party_key": PARTY_KEY, "party": 3, "budget": BUDGET}
        return Ledger(path, job=job, lifetime=AtMostTwo(), **terms)

    for job in ("first", "second", "first"):
        book(job).reserve(STEP, stage=0, label="x", digest="a")
    with pytest.raises(BudgetExceeded, match="lifetime"):
        book("third").reserve(STEP, stage=0, label="x", digest="a")
    assert seen == [0, 1, 2]
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 2


@given(st.lists(st.tuples(st.floats(2.0, 40.0), st.integers(1, 30)), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_spending_never_exceeds_the_budget_whatever_is_asked(tmp_path_factory, asked):
    path = tmp_path_factory.mktemp("ledger")
    book = ledger(path)
    for number, (sigma, times) in enumerate(asked):
        event = repeated(gaussian(sigma), times)
        before = read_entries(path / "ledger.jsonl")
        try:
            book.reserve(event, stage=0, label=str(number), digest="")
        except BudgetExceeded:
            assert read_entries(path / "ledger.jsonl") == before
        spent = read_entries(path / "ledger.jsonl")
        assert not spent or epsilon(total(spent), 1e-5, "pld") <= 1.0 * (1 + 1e-6)


def test_the_plan_is_counted_once_and_what_goes_beyond_it_is_refused(tmp_path):
    from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier

    sigma = poisson_gaussian_multiplier(0.02, 20, 1.0, 1e-5, "pld")
    step = poisson(0.02, gaussian(sigma))
    book = ledger(tmp_path)
    for call in range(20):
        book.reserve(step, stage=0, label=f"call {call}", digest="", expected=repeated(step, 20))
    beyond = repeated(step, 5)
    with pytest.raises(BudgetExceeded, match="party 3 refuses"):
        book.reserve(beyond, stage=0, label="more", digest="", expected=repeated(step, 20))


def test_an_expected_total_beyond_the_budget_is_no_permission(tmp_path):
    expected = repeated(gaussian(0.1), 100)
    with pytest.raises(BudgetExceeded):
        ledger(tmp_path).reserve(gaussian(0.1), stage=0, label="x", digest="", expected=expected)


def test_a_disclosure_needs_a_budget_without_end(tmp_path):
    with pytest.raises(BudgetExceeded):
        ledger(tmp_path).reserve(disclosed(), stage=0, label="x", digest="")
    free = ledger(tmp_path, Budget(float("inf"), 1e-5))
    free.reserve(disclosed(), stage=0, label="x", digest="")
    assert epsilon(total(read_entries(tmp_path / "ledger.jsonl")), 1e-5, "pld") == float("inf")


@pytest.mark.parametrize("change", ["edit", "remove", "swap", "garbage"])
def test_what_was_changed_afterwards_is_found(tmp_path, change):
    book = ledger(tmp_path)
    for call in range(4):
        book.reserve(STEP, stage=0, label=f"call {call}", digest="")
    path = tmp_path / "ledger.jsonl"
    lines = path.read_text().splitlines()
    if change == "edit":
        fields = json.loads(lines[1])
        fields["event"] = json.loads(lines[1].replace("0.01", "0.001"))["event"]
        lines[1] = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    elif change == "remove":
        del lines[1]
    elif change == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines[1] = "{}"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(LedgerDamaged, match=r"line [23]"):
        read_entries(path)
    with pytest.raises(LedgerDamaged):
        ledger(tmp_path).reserve(STEP, stage=1, label="new", digest="")


@given(st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_a_line_cut_off_by_a_crash_does_not_count_and_does_not_hurt(tmp_path_factory, cut):
    """A crash before the head knew of it: `reserve` had not returned."""
    path = tmp_path_factory.mktemp("ledger")
    book = ledger(path)
    for call in range(2):
        book.reserve(STEP, stage=0, label=f"call {call}", digest="")
    head = (path / "ledger.head").read_bytes()
    book.reserve(STEP, stage=0, label="call 2", digest="")
    file = path / "ledger.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    (path / "ledger.head").write_bytes(head)
    assert len(read_entries(file)) == 2
    again = ledger(path).reserve(STEP, stage=0, label="call 2", digest="")
    assert file.read_bytes() == whole
    assert again.seq == 2


def test_two_ledgers_on_one_file_take_turns(tmp_path):
    left, right = ledger(tmp_path), ledger(tmp_path)
    for call in range(6):
        (left if call % 2 else right).reserve(STEP, stage=0, label=f"call {call}", digest="")
    assert [e.label for e in read_entries(tmp_path / "ledger.jsonl")] == [
        f"call {i}" for i in range(6)
    ]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from fedsynth.core.types import (Budget)
    from fedsynth.privacy.accounting.events import gaussian, poisson
    from fedsynth.privacy.ledger import Ledger
    from fedsynth.privacy.noise import NoiseKey
    from fedsynth.privacy.party_key import PartyKey
    key = NoiseKey.from_seed(1, "party 0")
    book = Ledger(
        Path({path!r}), job="j", party=0, budget=Budget(8.0, 1e-5), noise_key=key,
        party_key=PartyKey.of_owner(Path(), "party 0", 1),
    )
    for call in range(10_000):
        book.reserve(poisson(.001, gaussian(2.0)), stage=0, label=f"call {{call}}", digest="")
        print(call, flush=True)
"""


def test_kill_9_never_hides_what_was_released(tmp_path):
    """Whatever `reserve` returned for before the kill is in the file after it."""
    path = tmp_path / "ledger.jsonl"
    root = str(Path(__file__).parents[2])
    program = textwrap.dedent(KILLED.format(root=root, path=str(path)))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        released = [int(process.stdout.readline()) for _ in range(25)]
        os.kill(process.pid, signal.SIGKILL)
        released += [int(line) for line in process.stdout]
    labels = {entry.label for entry in read_entries(path)}
    assert {f"call {call}" for call in released} <= labels


def test_a_full_disk_means_no_entry_and_no_release(tmp_path):
    """/dev/full accepts the opening and refuses the writing, as a full disk does."""
    HeadFile(tmp_path / "ledger.head", PARTY_KEY).create()
    (tmp_path / "ledger.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"No space left on device.*nothing was released"):
        ledger(tmp_path).reserve(STEP, stage=0, label="x", digest="")
    assert HeadFile(tmp_path / "ledger.head", PARTY_KEY).read() == (EMPTY, True)

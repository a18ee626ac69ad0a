"""The server's connection to the parties of a stage: checked answers, sums, and lost parties."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.messages import Release, Request
from fedsynth.engine.messages import BadReply, PartyLost
from fedsynth.experiment.server_session import StageConnection
from fedsynth.privacy.grid import FixedPointGrid

SHAPES = {"sum": torch.Size((2,))}


class Parties:
    """Three parties that answer with their number; some are gone."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.gone: set[int] = set()
        self.asked: list[list[int]] = []

    def __call__(
        self,
        parties: Sequence[int],
        stage: int,
        request: Request,
        missing: MutableMapping[int, str] | None = None,
    ) -> list[Release]:
        self.asked.append(list(parties))
        for party in self.gone & set(parties):
            assert missing is not None
            missing[party] = "it is gone"
        present = [party for party in parties if party not in self.gone]
        return [Release(p, {"sum": torch.full((2,), p + 1).to(self.dtype)}, ()) for p in present]


def connected(tmp_path: Path, parties: Parties) -> StageConnection:
    job = tiny.tiny_job("psg_joint", tmp_path / "run", "together")
    return StageConnection(job, 0, parties, ())  # type: ignore[arg-type]


def test_answers_have_the_expected_form_or_name_their_request(tmp_path: Path) -> None:
    ctx = connected(tmp_path, Parties())
    answers = ctx.ask(ctx.parties, Request("gradient", 3), shapes=SHAPES)
    assert [answer.party for answer in answers] == [0, 1, 2]
    for wrong in ({"shapes": {"sum": (3,)}}, {"shapes": SHAPES, "dtype": torch.int64}):
        with pytest.raises(BadReply, match=r"psg_joint, 'gradient' round 3 of stage 1 is refused"):
            ctx.ask(ctx.parties, Request("gradient", 3), **wrong)


def test_a_lost_party_is_not_asked_again(tmp_path: Path) -> None:
    parties = Parties()
    ctx = connected(tmp_path, parties)
    parties.gone = {1}
    for number in range(2):
        answers = ctx.ask(ctx.parties, Request("gradient", number), allow_missing=True)
        assert [answer.party for answer in answers] == [0, 2]
    assert parties.asked == [[0, 1, 2], [0, 2]]
    parties.gone = {0, 2}
    with pytest.raises(PartyLost, match=r"no party is left that answers.*it is gone"):
        ctx.ask(ctx.parties, Request("gradient", 2), allow_missing=True)


def test_a_sum_needs_its_shares(tmp_path: Path) -> None:
    parties = Parties(torch.int64)
    ctx = connected(tmp_path, parties)
    asked = {"shapes": SHAPES, "bound": 1.0}
    total = ctx.ask_sum(ctx.parties, Request("gradient", 0), **asked, at_least=3)
    assert total.parties == (0, 1, 2)
    expected = FixedPointGrid.of(1.0, 2).read(torch.tensor([6, 6]))
    assert torch.equal(total.arrays["sum"], expected)
    parties.gone = {2}
    fewer = ctx.ask_sum(ctx.parties, Request("gradient", 1), **asked, at_least=2)
    assert fewer.parties == (0, 1)
    with pytest.raises(PartyLost, match=r"2 of 3 parties answered.*at least 3 shares"):
        ctx.ask_sum(ctx.parties, Request("gradient", 2), **asked, at_least=3)
    assert len(parties.asked) == 2  # too few are not asked at all


@pytest.mark.usefixtures("checkpoint_every_round")
@pytest.mark.parametrize("noise_seed", [7, None])
def test_rounds_go_on_where_they_broke_off(tmp_path: Path, noise_seed: int | None) -> None:
    """Whether the noise comes from a seed or from the operating system."""
    job = tiny.tiny_job("psg_joint", tmp_path / "run", "together", noise_seed=noise_seed)
    found = []
    for until in (2, 4):
        ctx = StageConnection(job, 0, Parties(), ())  # type: ignore[arg-type]
        total = torch.zeros(())
        for number in ctx.rounds(4, {"total": total}):
            if number == until:
                break
            found.append(number)
            total += 10**number
    assert found == [0, 1, 2, 3]
    assert total == 1111

"""A party's critics: warmed up at home, trained at every visit, and never sent.

One subset of records has one critic. Between visits it lies in the party's folder with its
optimiser and with what it answered; a visit that is asked for again (after a crash, by a curator
that went back to a checkpoint) gets the same answer, and one that would need an older critic than
there is gets none. So noise that was drawn for an answer never meets another one.
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import DatasetInfo, Shape
from fedsynth.methods.gs_wgan.config import CriticConfig
from fedsynth.methods.gs_wgan.generator import draw_inputs, fill, flat, new_generator
from fedsynth.methods.gs_wgan.schedule import SubsetTurn
from fedsynth.nn.gan.critics import ProjectionCritic, upstream_gradients, wasserstein_loss
from fedsynth.privacy.party_data import PartyData, Records
from fedsynth.storage.files import atomic_write

_HEADER = struct.Struct("<qq")  # visits, and steps of the optimiser
_MOMENTS = ("exp_avg", "exp_avg_sq")


class Critic:
    """A critic with its optimiser while it is being trained on one subset."""

    def __init__(
        self,
        cfg: CriticConfig,
        data: DatasetInfo,
        classes: tuple[int, ...],
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        """`classes` are the names of the labels, in order; `key` names the public randomness."""
        self.cfg, self.data, self.classes, self.key, self.device = cfg, data, classes, key, device
        self.net = _blank(cfg.width, len(classes), data.shape).to(device)
        self.adam = self._adam(self.net)
        self.visits = 0  # that it was trained for

    def _adam(self, net: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(net.parameters(), self.cfg.rate, betas=(0.5, 0.9))

    def begin(self) -> None:
        """Become a fresh critic."""
        with default_seed(*self.key, "critic"):
            fresh = ProjectionCritic(self.cfg.width, len(self.classes), self.data.shape)
        fill(self.net, flat(fresh))
        self.adam, self.visits = self._adam(self.net), 0

    def inputs(self, places: Tensor, *purpose: object) -> tuple[Tensor, Tensor]:
        """Codes and labels of a batch of fakes."""
        codes, labels = draw_inputs(self.cfg.batch, self.cfg.code, places, (*self.key, *purpose))
        return codes.to(self.device), labels.to(self.device)

    def train(self, records: Records, generator: nn.Module, *purpose: object) -> None:
        """n_dis steps on real batches and the generator's fakes of their labels, all at home."""
        if not len(records.labels):
            return
        places = {name: place for place, name in enumerate(self.classes)}
        for step in range(self.cfg.critic_steps):
            draw = torch_generator(*self.key, *purpose, "batch", step)
            chosen = _batch(len(records.labels), self.cfg.batch, draw)
            real = records.pixels(chosen).to(self.device)
            labels = torch.tensor([places[name] for name in records.labels[chosen].tolist()])
            labels = labels.to(self.device)
            codes, _ = self.inputs(labels, *purpose, "codes", step)
            mix = torch.rand(len(chosen), generator=draw).to(self.device)
            with torch.no_grad():
                fake = generator(codes, labels)
            loss = wasserstein_loss(
                self.net, real, fake, labels, mix, penalty=self.cfg.penalty, drift=self.cfg.drift
            )
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()

    def warm_up(self, records: Records, private: PartyData, name: str) -> None:
        """Train against a generator of its own, which is thrown away; survives a crash."""
        self.begin()
        cfg, count = self.cfg, len(self.classes)
        generator = new_generator(
            cfg.generator, cfg.depth, cfg.code, count, self.data, *self.key, "warm"
        ).to(self.device)
        adam = self._adam(generator)
        state = {"critic": self.net, "adam": self.adam, "generator": generator, "own": adam}
        everywhere = torch.arange(count)
        for step in private.rounds(cfg.warm, state, name):
            self.train(records, generator, "warm", step)
            codes, labels = self.inputs(everywhere, "warm", step)
            loss = -self.net(generator(codes, labels), labels).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        for left in (f"{name}.checkpoint", f"{name}.checkpoint.previous"):
            private.file(left).unlink(missing_ok=True)

    def depends_on(self, records: Records) -> tuple[bytes, ...]:
        """All that the warm critic depends on."""
        cfg = (self.cfg.batch, self.cfg.critic_steps, self.cfg.warm, self.cfg.rate)
        losses, sizes = (self.cfg.penalty, self.cfg.drift), (self.cfg.code, self.cfg.generator)
        terms = (cfg, losses, sizes, self.cfg.depth, self.cfg.width, self.classes, self.key)
        return (
            repr(terms).encode(),
            records.images.numpy().tobytes(),
            records.labels.numpy().tobytes(),
        )

    def upstream(self, generator: nn.Module, codes: Tensor, labels: Tensor) -> Tensor:
        """The gradient of -D at each of the generator's images of these codes and labels."""
        with torch.no_grad():
            images = generator(codes, labels)
        self.net.eval()
        slopes = upstream_gradients(self.net, images, labels)
        self.net.train()
        return slopes

    def to_bytes(self, *, optimiser: bool = True) -> bytes:
        """The critic, for the party's own disk; a warm one starts with a fresh optimiser."""
        parts, steps = [flat(self.net)], 0
        states = [self.adam.state[p] for p in self.net.parameters() if p in self.adam.state]
        if optimiser and states:
            parts += [torch.cat([s[name].reshape(-1) for s in states]) for name in _MOMENTS]
            steps = int(states[0]["step"])
        return _HEADER.pack(self.visits, steps) + torch.cat(parts).cpu().numpy().tobytes()

    def restore(self, raw: bytes) -> None:
        """Become the critic of `to_bytes`."""
        visits, steps = _HEADER.unpack_from(raw)
        weights = list(self.net.parameters())
        sizes = [weight.numel() for weight in weights]
        numbers = sum(sizes) + sum(buffer.numel() for buffer in self.net.buffers())
        values = _from_bytes(raw[_HEADER.size :]).to(self.device)
        if len(values) != numbers + bool(steps) * len(_MOMENTS) * sum(sizes):
            raise UserError("a critic was kept in another form: start the run anew.")
        fill(self.net, values[:numbers])
        self.visits, self.adam = visits, self._adam(self.net)
        if steps:
            first, second = values[numbers:].chunk(2)
            moments = zip(weights, first.split(sizes), second.split(sizes), strict=True)
            for weight, *pair in moments:
                shaped = [moment.view_as(weight) for moment in pair]
                count = torch.tensor(float(steps))
                self.adam.state[weight] = {
                    "step": count, **dict(zip(_MOMENTS, shaped, strict=True))
                }  # fmt: skip


@functools.lru_cache(maxsize=4)
def _blank(width: int, classes: int, shape: Shape) -> ProjectionCritic:
    """A critic to be filled, one a process: making one takes longer than filling it."""
    with default_seed("blank"):
        return ProjectionCritic(width, classes, shape)


class StoredCritic:
    """The critic of one subset, in the party's folder."""

    def __init__(self, critic: Critic, private: PartyData, index: int) -> None:
        self.critic, self._private = critic, private
        folder = private.file("critics")
        folder.mkdir(mode=0o700, exist_ok=True)
        # Whatever is called a checkpoint is destroyed with the noise key when all is released.
        self._state = folder / f"subset-{index}.checkpoint"
        self._answer = lambda number: folder / f"subset-{index}-visit-{number}.checkpoint"
        self._warm_name = f"warm-{index}"

    def ready(self, records: Records) -> None:
        """Make sure that there is a warm critic, and load it."""
        if self._state.exists():
            self.critic.restore(self._state.read_bytes())
            return
        cfg = self.critic.cfg
        if cfg.keep and cfg.warm and self._private.vault is not None:
            depends_on = self.critic.depends_on(records)
            self.critic.restore(
                self._private.vault.recall(depends_on, lambda: self._warmed_up(records))
            )
        else:
            self.critic.restore(self._warmed_up(records))
        self._save()

    def _warmed_up(self, records: Records) -> bytes:
        self.critic.warm_up(records, self._private, self._warm_name)
        return self.critic.to_bytes(optimiser=False)

    def train(self, visit: SubsetTurn, records: Records, generator: nn.Module) -> None:
        """Train the critic for this visit, unless that was done."""
        self.ready(records)
        if self.critic.visits > visit.number:
            return
        if self.critic.visits < visit.number:
            raise UserError(
                f"the critic of subset {visit.part.index} has been trained for "
                f"{self.critic.visits} visits and is asked for one after {visit.number}: its "
                "party's folder or the curator's was changed in the middle of a stage. Start the "
                "run anew."
            )
        self.critic.train(records, generator, "visit", visit.number)
        self.critic.visits += 1
        self._save()

    def answer(
        self, visit: SubsetTurn, records: Records, generator: nn.Module, inputs: Any
    ) -> Tensor:
        """The upstream gradients of this visit: private until they are sanitised."""
        path: Path = self._answer(visit.number)
        if path.exists():
            shape = (len(inputs[0]), *self.critic.data.shape)
            return _from_bytes(path.read_bytes()).view(shape).to(self.critic.device)
        self.train(visit, records, generator)
        if self.critic.visits != visit.number + 1:
            raise UserError(
                f"the answer of subset {visit.part.index} to visit {visit.number} is lost, and its "
                "critic has gone on: its party's folder was changed. Start the run anew."
            )
        slopes = self.critic.upstream(generator, *inputs)
        if not len(records.labels):  # a critic that has seen nothing has nothing to say
            slopes = torch.zeros_like(slopes)
        atomic_write(path, slopes.cpu().numpy().tobytes(), durable=False)
        return slopes

    def _save(self) -> None:
        atomic_write(self._state, self.critic.to_bytes(), durable=False)


def _batch(records: int, size: int, generator: torch.Generator) -> Tensor:
    """Which records are in a batch: without repetition where there are enough."""
    if records >= size:
        return torch.randperm(records, generator=generator)[:size]
    return torch.randint(records, (size,), generator=generator)


def _from_bytes(raw: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(raw, dtype=np.float32).copy())

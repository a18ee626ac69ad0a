"""The critics of a party: warm-started and trained on its records, and never sent.

Each subset of records has one critic. Between turns the critic, its optimiser and its upstream
gradients lie in the party's folder. A turn that is requested again (after a crash, by a server that
went back to a checkpoint) gets the same gradients, and a turn that needs an older critic than the
stored one is refused. So the noise of one turn is never added to two different gradients, which
would reveal their difference.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.tensor_bytes import tensor_bytes
from fedsynth.core.types import DatasetInfo, Shape
from fedsynth.data.records import Records
from fedsynth.methods.common.generator_release import load_state_vector, state_vector
from fedsynth.methods.gs_wgan.config import CriticConfig, WassersteinConfig
from fedsynth.methods.gs_wgan.generator import draw_inputs, new_generator
from fedsynth.methods.gs_wgan.schedule import SubsetTurn
from fedsynth.nn import optimizers
from fedsynth.nn.compute_dtype import autocast
from fedsynth.nn.gan.critics import ProjectionCritic, upstream_gradients, wasserstein_loss
from fedsynth.privacy.party_data import PartyData
from fedsynth.storage.state_file import (
    DamagedState,
    read_state,
    state_from_bytes,
    state_to_bytes,
    write_state,
)

STORED_FORM = b"state file 2"  # of cached critics


class TrainedCritic:
    """A critic with its optimiser, while it is trained on records."""

    def __init__(
        self,
        cfg: WassersteinConfig,
        data: DatasetInfo,
        classes: tuple[int, ...],
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        """`classes` are the labels in order of class index; `key` names the public randomness."""
        self.cfg, self.data, self.classes, self.key, self.device = cfg, data, classes, key, device
        self.net = _blank(cfg.width, len(classes), data.shape).to(device)
        self.adam = self._adam(self.net)

    def _adam(self, net: nn.Module) -> optimizers.Adam:
        return optimizers.Adam(net.parameters(), self.cfg.learning_rate, betas=(0.5, 0.9))

    def reset(self) -> None:
        """Start with fresh weights and a fresh optimiser."""
        with default_seed(*self.key, "critic"):
            fresh = ProjectionCritic(self.cfg.width, len(self.classes), self.data.shape)
        load_state_vector(self.net, state_vector(fresh))
        self.adam = self._adam(self.net)

    def inputs(self, class_indices: Tensor, *purpose: object) -> tuple[Tensor, Tensor]:
        """Latents and class indices of a batch of generated images."""
        key = (*self.key, *purpose)
        latents, labels = draw_inputs(self.cfg.batch, self.cfg.latent, class_indices, key)
        return latents.to(self.device), labels.to(self.device)

    def train(self, records: Records, generator: nn.Module, *purpose: object) -> None:
        """n_dis steps on batches of records and on generated images of the same labels."""
        if not len(records.labels):
            return
        class_index = {label: index for index, label in enumerate(self.classes)}
        for step in range(self.cfg.critic_steps):
            draw = torch_generator(*self.key, *purpose, "batch", step)
            chosen = _batch(len(records.labels), self.cfg.batch, draw)
            real = records.pixels(chosen).to(self.device)
            labels = torch.tensor([class_index[c] for c in records.labels[chosen].tolist()])
            latents, _ = self.inputs(labels, *purpose, "codes", step)
            labels = labels.to(self.device)
            mix = torch.rand(len(chosen), generator=draw).to(self.device)
            with autocast(self.cfg.dtype, self.device):
                with torch.no_grad():
                    fake = generator(latents, labels).to(real.dtype)
                loss = wasserstein_loss(
                    self.net,
                    real,
                    fake,
                    labels,
                    mix,
                    penalty=self.cfg.penalty,
                    drift=self.cfg.drift,
                )
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()

    def upstream(self, images: Tensor, labels: Tensor) -> Tensor:
        """The gradient of -D at each of these generated images."""
        self.net.eval()
        with autocast(self.cfg.dtype, self.device):
            gradients = upstream_gradients(self.net, images, labels)
        self.net.train()
        return gradients


class Critic(TrainedCritic):
    """A critic that is warm-started, with the number of turns that it was trained for."""

    cfg: CriticConfig
    turns = 0

    def reset(self) -> None:
        super().reset()
        self.turns = 0

    def warm_up(self, records: Records, private: PartyData, name: str) -> None:
        """Train from scratch against a generator that is then discarded; resumes after a crash."""
        self.reset()
        cfg, count = self.cfg, len(self.classes)
        generator = new_generator(
            cfg.generator, cfg.depth, cfg.latent, count, self.data, *self.key, "warm"
        ).to(self.device)
        adam = self._adam(generator)
        state = {"critic": self.net, "adam": self.adam, "generator": generator, "own": adam}
        every_class = torch.arange(count)
        for step in private.rounds(cfg.warm_steps, state, name):
            self.train(records, generator, "warm", step)
            latents, labels = self.inputs(every_class, "warm", step)
            with autocast(cfg.dtype, self.device):
                loss = -self.net(generator(latents, labels), labels).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        for finished in (f"{name}.checkpoint", f"{name}.checkpoint.previous"):
            private.file(finished).unlink(missing_ok=True)

    def depends_on(self, records: Records) -> tuple[bytes | memoryview, ...]:
        """All that the warm-started critic depends on."""
        cfg = (self.cfg.batch, self.cfg.critic_steps, self.cfg.warm_steps, self.cfg.learning_rate)
        losses, sizes = (self.cfg.penalty, self.cfg.drift), (self.cfg.latent, self.cfg.generator)
        nets = (self.cfg.depth, self.cfg.width, self.cfg.dtype)
        terms = (cfg, losses, sizes, nets, self.classes, self.key)
        return (
            STORED_FORM,
            repr(terms).encode(),
            tensor_bytes(records.images),
            tensor_bytes(records.labels),
        )

    def state(self, *, optimiser: bool = True) -> dict[str, Any]:
        """The critic and, unless it is only warm-started, its optimiser, for the party's disk."""
        adam = self.adam.state_dict() if optimiser else None
        return {"turns": self.turns, "net": self.net.state_dict(), "adam": adam}

    def restore(self, stored: dict[str, Any]) -> None:
        """Become the critic of `state`, as it was stored."""
        self.net.load_state_dict(stored["net"])
        self.turns, self.adam = stored["turns"], self._adam(self.net)
        if stored["adam"] is not None:
            self.adam.load_state_dict(stored["adam"])


@functools.lru_cache(maxsize=4)
def _blank(width: int, classes: int, shape: Shape) -> ProjectionCritic:
    """A critic to load weights into, one per process: creating it takes longer than loading."""
    with default_seed("blank"):
        return ProjectionCritic(width, classes, shape)


class StoredCritic:
    """The critic of one subset in the party's folder, with the gradients of its turns."""

    def __init__(self, critic: Critic, private: PartyData, index: int) -> None:
        self.critic, self._private = critic, private
        self._folder, self._index = private.file("critics"), index
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Files named *.checkpoint are destroyed with the noise key after the release.
        self._state = self._folder / f"subset-{index}.checkpoint"
        self._warm_name = f"warm-{index}"

    def load(self, records: Records) -> None:
        """Load the critic; before its first turn, warm it up or take it from the cache."""
        if self._state.exists():
            self.critic.restore(self._read(self._state))
            return
        cfg = self.critic.cfg
        if cfg.keep and cfg.warm_steps and self._private.private_cache is not None:
            depends_on = self.critic.depends_on(records)
            stored = self._private.private_cache.get_or_compute(
                depends_on, lambda: state_to_bytes(self._warmed_up(records))
            )
            self.critic.restore(state_from_bytes(stored))
        else:
            self.critic.restore(self._warmed_up(records))
        self._save()

    def _warmed_up(self, records: Records) -> dict[str, Any]:
        self.critic.warm_up(records, self._private, self._warm_name)
        return self.critic.state(optimiser=False)

    def train(self, turn: SubsetTurn, records: Records, generator: nn.Module) -> None:
        """Train the critic for this turn, unless that was done before.

        Raises:
            UserError: An earlier turn is missing.
        """
        self.load(records)
        if self.critic.turns > turn.number:
            return
        if self.critic.turns < turn.number:
            raise UserError(
                f"the critic of subset {turn.subset.index} has been trained for "
                f"{self.critic.turns} turns and not for the {turn.number} before this one: the "
                "folder of the party or of the server was changed in the middle of a stage. Start "
                "the run anew."
            )
        self.critic.train(records, generator, "visit", turn.number)
        self.critic.turns += 1
        self._save()

    def upstream_gradients(
        self,
        turn: SubsetTurn,
        records: Records,
        generator: nn.Module,
        images: tuple[Tensor, Tensor],
    ) -> Tensor:
        """The upstream gradients of this turn at these images and labels: private until they are
        sanitised.

        Raises:
            UserError: They were computed before and are lost.
        """
        path = self._gradients_file(turn.number)
        if path.exists():
            gradients: Tensor = self._read(path)
            return gradients.to(self.critic.device)
        self.train(turn, records, generator)
        if self.critic.turns != turn.number + 1:
            raise UserError(
                f"the gradients of subset {turn.subset.index} in its turn {turn.number} are lost, "
                "and its critic was trained further: the party's folder was changed. Start the run "
                "anew."
            )
        gradients = self.critic.upstream(*images)
        if not len(records.labels):  # an untrained critic contributes nothing
            gradients = torch.zeros_like(gradients)
        write_state(path, gradients, durable=False)
        return gradients

    def _gradients_file(self, number: int) -> Path:
        return self._folder / f"subset-{self._index}-visit-{number}.checkpoint"

    def _save(self) -> None:
        write_state(self._state, self.critic.state(), durable=False)

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            return read_state(path)
        except DamagedState as error:
            raise UserError(f"{path} is damaged ({error}): start the run anew.") from error


def _batch(records: int, size: int, generator: torch.Generator) -> Tensor:
    """The records of a batch: without repetition if there are enough."""
    if records >= size:
        return torch.randperm(records, generator=generator)[:size]
    return torch.randint(records, (size,), generator=generator)

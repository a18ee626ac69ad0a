"""The teachers that one party hosts: who learns from which records, and a round of all of them.

Each record belongs to the teacher that a hash of its own content names, so adding or removing a
record changes what one teacher learns from and nothing else. A teacher without records abstains.
Stacks of teachers are independent of one another and their votes are whole numbers, so the count is
the same in whatever order and on however many threads they are trained.

Between rounds a teacher keeps its weights and Adam's mean of squares. The mean of gradients starts
every round at the round's first gradient; with a decay of 0.5 a round later little is left of it,
and it would take half as much memory again.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import psutil
import torch
from torch import Tensor

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays
from fedsynth.core.randomness import key as randomness_key
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.methods.pate.datalens.compression import cast
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.parameters import Recipe
from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack, adam_step
from fedsynth.nn.ensembles.teacher_config import initial
from fedsynth.privacy.mechanisms.votes import VoteCounts
from fedsynth.privacy.party_data import Records
from fedsynth.privacy.subsets import part_numbers, record_hashes

STACK = 8  # teachers that go through one product


def not_empty(records: Records, classes: Sequence[int]) -> Records:
    """The records, or a black image where there are none: teachers without records go through the
    same motions, and their votes do not count."""
    if len(records.labels):
        return records
    black = records.images.new_zeros(1, *records.images.shape[1:])
    return Records(black, torch.tensor(classes[:1]))


@dataclass(frozen=True)
class RecordAssignment:
    """The records of each teacher: places and digests [teachers, widest]; the rest of a row is
    unused. Nothing here but the form depends on the records of other teachers."""

    places: Tensor
    digests: np.ndarray
    sizes: Tensor

    @staticmethod
    def of(records: Records, teachers: int, partition: str) -> RecordAssignment:
        """Deal the records out by their hashes."""
        found = record_hashes(records, partition)
        owner = part_numbers(records, partition, teachers)
        sizes = torch.bincount(owner, minlength=teachers)
        order = owner.argsort(stable=True)
        rank = torch.arange(len(owner)) - (sizes.cumsum(0) - sizes)[owner[order]]
        places = torch.zeros(teachers, max(1, int(sizes.max())), dtype=torch.int64)
        places[owner[order], rank] = order
        digests = found[places.numpy()] if len(found) else np.zeros(places.shape, np.uint64)
        return RecordAssignment(places, digests, sizes)

    def batch(self, images: int, *key: object) -> Tensor:
        """Records for one batch of each teacher [teachers, images]: in an order drawn anew for
        every key, over again from the start where a teacher has fewer. A record's place in the
        order depends on itself alone, so no teacher's batch depends on another's records."""
        drawn = mixed(self.digests ^ np.uint64(randomness_key(*key)))
        drawn[np.arange(drawn.shape[1]) >= self.sizes.numpy()[:, None]] = np.iinfo(np.uint64).max
        order = torch.from_numpy(drawn.argsort(1, kind="stable"))
        first = torch.arange(images) % self.sizes.clamp(min=1)[:, None]
        return self.places.gather(1, order.gather(1, first))


def mixed(values: np.ndarray) -> np.ndarray:
    """These numbers as good as drawn at random, each from itself alone (splitmix64)."""
    with np.errstate(over="ignore"):
        x = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Question:
    """One round's public things, ready for the teachers."""

    number: int
    made: Tensor  # [m, classes, positions, 25 c]: each code's image of every class, as windows
    images: Tensor  # [m, positions, 25 c]: the images voted on
    labels: Tensor  # [m], of these

    @staticmethod
    def of(number: int, arrays: Arrays, recipe: Recipe, stage: Stage, like: Tensor) -> Question:
        """The round behind these arrays; refuses what is not one."""
        image = tuple(stage.data.shape)
        forms = {
            "made": (recipe.images, len(stage.classes), *image),
            "images": (recipe.images, *image),
            "labels": (recipe.images,),
        }
        for name, form in forms.items():
            if name not in arrays or tuple(arrays[name].shape) != form:
                raise UserError(f"round {number} of datalens needs {name!r} of the form {form}.")
        labels = arrays["labels"].long()
        if not bool(((labels >= 0) & (labels < len(stage.classes))).all()):
            raise UserError(f"round {number} of datalens asks for classes that do not exist.")
        made = unfolded(arrays["made"].flatten(0, 1), like).unflatten(0, forms["made"][:2])
        return Question(number, made, unfolded(arrays["images"], like), labels.to(like.device))


def unfolded(images: Tensor, like: Tensor) -> Tensor:
    """Pixels [n, c, h, w] as the windows of a teacher's first convolution."""
    return windows(images.to(like.device, like.dtype).permute(0, 2, 3, 1).contiguous())


@dataclass(frozen=True)
class _Stack:
    """Some teachers: parameters and Adam's mean of squares, each flat."""

    start: int  # the number of the first teacher
    teachers: int
    flat: Tensor
    squares: Tensor


class TeacherEnsemble:
    """All teachers of one party in one stage."""

    def __init__(
        self,
        records: Records,
        teachers: int,
        *,
        cfg: DataLensConfig,
        recipe: Recipe,
        stage: Stage,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        self.cfg, self.recipe, self.stage, self.key = cfg, recipe, stage, key
        self.shape = recipe.shape(cfg, stage)
        self.members, self.device = RecordAssignment.of(records, teachers, repr(key)), device
        self.records = records = not_empty(records, stage.classes)
        lookup = torch.zeros(stage.data.classes, dtype=torch.int64)
        lookup[list(stage.classes)] = torch.arange(len(stage.classes))
        self.labels = lookup[records.labels]
        self.dtype = getattr(torch, cfg.dtype)
        self.stacks: list[_Stack] = []
        self._memory: mmap.mmap | None = None
        self.done = 0  # rounds that the teachers have been through
        self.whole = False  # no round was broken off in the middle
        at_once = len(stage.parties) * stage.count
        self.threads = max(1, len(os.sched_getaffinity(0)) // at_once)

    @property
    def bytes(self) -> int:
        """What the teachers and their optimisers take."""
        return 2 * self.dtype.itemsize * self.shape.parameters * len(self.members.sizes)

    def begin(self) -> None:
        """Fresh teachers."""
        teachers = len(self.members.sizes)
        if not self.stacks:
            self.stacks = self._allocated(teachers)
        for stack in self.stacks:
            generator = torch_generator(*self.key, "teachers", stack.start)
            stack.flat.copy_(initial(self.shape, stack.teachers, generator, self.dtype))
            stack.squares.zero_()
        self.done, self.whole = 0, True

    def _allocated(self, teachers: int) -> list[_Stack]:
        """Memory for all teachers: on the CPU one piece from the system, which takes it back whole
        at the end, whatever the allocator of this process likes to keep."""
        free = psutil.virtual_memory().available
        if self.device.type != "cpu":
            state = torch.empty(2, self.bytes // 2, dtype=torch.uint8, device=self.device)
        elif self.bytes > free:
            raise UserError(
                f"{teachers:,} teachers of datalens take {self.bytes / 1e9:.1f} GB, and this "
                f"machine has {free / 1e9:.1f} GB free. Host fewer (datalens.teachers), or run one "
                "budget and seed at a time."
            )
        else:
            self._memory = mmap.mmap(-1, self.bytes)
            state = torch.frombuffer(self._memory, dtype=torch.uint8).view(2, -1)
        flat, squares = state.view(self.dtype)
        starts = range(0, teachers, STACK)
        sizes = [min(STACK, teachers - start) for start in starts]
        numbers = [size * self.shape.parameters for size in sizes]
        parts = zip(starts, sizes, flat.split(numbers), squares.split(numbers), strict=True)
        return [_Stack(*part) for part in parts]

    def end(self) -> None:
        """Give the memory back."""
        self.stacks, self._memory, self.whole = [], None, False

    def round(self, question: Question, *, votes: bool = True) -> VoteCounts | None:
        """Train all teachers for one round and count their votes; without `votes`, train only."""
        if question.number != self.done or not self.whole:
            raise RuntimeError(f"these teachers are at round {self.done}, not {question.number}")
        batch = self.members.batch(self.recipe.images, *self.key, "batch", question.number)
        waiting, lock = iter(self.stacks), threading.Lock()

        def worker(_: int) -> VoteCounts:
            return VoteCounts.count(self.recipe.rule, self.recipe.images, ballots())

        def ballots() -> Iterator[Tensor]:
            """Trains stack after stack, as long as there are any, and hands out their ballots."""
            scratch = self.stacks[0].flat.new_empty(2, len(self.stacks[0].flat))
            while (stack := next_of(waiting, lock)) is not None:
                self._train(stack, question, batch, scratch[:, : len(stack.flat)])
                if votes:
                    yield self._votes(stack, question)

        self.whole = False
        if self.threads == 1:
            counted = [worker(0)]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                counted = list(pool.map(worker, range(self.threads)))
        self.done, self.whole = question.number + 1, True
        return VoteCounts.total(counted) if votes else None

    def _train(self, stack: _Stack, question: Question, batch: Tensor, scratch: Tensor) -> None:
        mine = batch[stack.start : stack.start + stack.teachers]
        labels = self.labels[mine].to(self.device)
        real = unfolded(self.records.pixels(mine.flatten()), stack.flat).unflatten(0, mine.shape)
        codes = torch.arange(mine.shape[1], device=self.device)
        rows = torch.cat([real, question.made[codes, labels]], 1)
        model = TeacherStack(self.shape, self.shape.views(stack.flat, stack.teachers))
        slopes, mean = scratch
        grads = self.shape.views(slopes, stack.teachers)
        mean.zero_()
        both = labels.repeat(1, 2)
        for step in range(self._steps(question.number)):
            model.training_gradient(rows, both, grads)
            if question.number and step == 0:
                mean.copy_(slopes)
            done = self._steps_before(question.number) + step
            adam_step(stack.flat, slopes, mean, stack.squares, done)

    def _votes(self, stack: _Stack, question: Question) -> Tensor:
        model = TeacherStack(self.shape, self.shape.views(stack.flat, stack.teachers))
        rows = question.images.expand(stack.teachers, -1, -1, -1)
        labels = question.labels.expand(stack.teachers, -1)
        gradients = model.image_gradient(rows, labels).permute(0, 1, 4, 2, 3).flatten(2).float()
        ballots = self._ballots(gradients, question.number, stack.start)
        awake = self.members.sizes[stack.start : stack.start + stack.teachers] > 0
        return ballots * awake.to(ballots.device)[:, None, None]

    def _ballots(self, gradients: Tensor, number: int, start: int) -> Tensor:
        """What the teachers from `start` on vote, by their gradients [teachers, images, d]."""
        generator = torch_generator(*self.key, "votes", number, start)
        return cast(self.cfg, self.recipe, gradients, generator)

    def _steps(self, number: int) -> int:
        return self.cfg.teacher_steps if number else self.cfg.pretraining

    def _steps_before(self, number: int) -> int:
        return self.cfg.pretraining + (number - 1) * self.cfg.teacher_steps if number else 0

    def fingerprint(self) -> str:
        """What saved teachers belong to: settings, key and records."""
        said = repr((self.cfg, self.key, self.shape, self.recipe.rounds, self.recipe.multiplier))
        dealt = self.members.places.numpy().tobytes() + self.labels.numpy().tobytes()
        return hashlib.sha256(said.encode() + dealt).hexdigest()

    def tensors(self) -> Sequence[Tensor]:
        """Everything that changes, in order."""
        return [part for s in self.stacks for part in (s.flat, s.squares)]


def next_of(stacks: Iterator[_Stack], lock: threading.Lock) -> _Stack | None:
    """The next stack that no thread has taken."""
    with lock:
        return next(stacks, None)

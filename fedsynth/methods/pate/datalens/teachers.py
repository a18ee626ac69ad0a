"""The ensemble of teachers that one party hosts, and one round of their training and voting.

A teacher is a function of its own records and of public images; one without records abstains.
Stacks of teachers are independent and their votes are whole numbers, so the sums are the same for
any order and number of threads.

Between rounds a teacher keeps its weights and Adam's second moments. The first moment starts every
round at the round's first gradient: with a decay of 0.5 little of it is left a round later, and it
would take half as much memory again.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import psutil
import torch
from torch import Tensor

from fedsynth.core.enums import Relation
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays, Request
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.data.records import Records
from fedsynth.methods.method import Method
from fedsynth.methods.pate.datalens.config import EnsembleConfig
from fedsynth.methods.pate.datalens.parameters import CONVENTION, EnsembleParameters
from fedsynth.methods.pate.record_assignment import RecordAssignment, or_black_image
from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack, adam_step
from fedsynth.nn.ensembles.teacher_config import initial_parameters
from fedsynth.privacy.mechanisms.votes import VoteCounts

E = TypeVar("E", bound=EnsembleConfig)
STACK = 8  # teachers per batched product

# Turns gradients [teachers, images, d] into votes; also given the round and the first teacher.
Compression = Callable[[Tensor, int, int], Tensor]


class TeacherMethod(Method[E]):
    """As many rounds of votes of a party's teachers as the budget covers."""

    paper_convention = CONVENTION
    paper_relation = Relation.REPLACE_ONE
    keeps_state = True


@dataclass(frozen=True)
class Query:
    """The public images of one round, in the layout that teachers read."""

    number: int
    made: Tensor  # [m, classes, positions, 25 c]: each latent's image of every class, as windows
    images: Tensor  # [m, positions, 25 c]: the images voted on
    labels: Tensor  # [m], of these

    @staticmethod
    def check(request: Request, parameters: EnsembleParameters, stage: Stage) -> None:
        """Refuse arrays that are no query, before a record is looked at.

        Raises:
            Refused: An array is missing or has another form, or a label is out of range.
        """
        image, images = tuple(stage.data.shape), parameters.images
        request.array("made", (images, len(stage.classes), *image))
        request.array("images", (images, *image))
        labels = request.array("labels", (images,), torch.int64)
        if not bool(((labels >= 0) & (labels < len(stage.classes))).all()):
            raise request.refused("has labels of classes that do not exist.")
        if not 0 <= request.round < parameters.rounds:
            raise request.refused(
                f"is for round {request.round}; the budget covers 0..{parameters.rounds - 1}."
            )

    @staticmethod
    def of(number: int, arrays: Arrays, like: Tensor) -> Query:
        """The arrays of a checked request, in the type and on the device of `like`."""
        made, labels = arrays["made"], arrays["labels"]
        made = _unfolded(made.flatten(0, 1), like).unflatten(0, made.shape[:2])
        return Query(number, made, _unfolded(arrays["images"], like), labels.to(like.device))


def _unfolded(images: Tensor, like: Tensor) -> Tensor:
    """Pixels [n, c, h, w] as the windows of a teacher's first convolution."""
    return windows(images.to(like.device, like.dtype).permute(0, 2, 3, 1).contiguous())


@dataclass(frozen=True)
class _Stack:
    """Consecutive teachers: parameters and Adam's second moments, each flat."""

    start: int  # the number of the first teacher
    teachers: int
    flat: Tensor
    squares: Tensor


class TeacherEnsemble:
    """All teachers of one party in one stage."""

    def __init__(
        self,
        records: Records,
        assignment: RecordAssignment,
        *,
        cfg: EnsembleConfig,
        parameters: EnsembleParameters,
        compression: Compression,
        stage: Stage,
        key: tuple[object, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`key` names the public randomness, and is the name of the assignment's partition."""
        self.cfg, self.parameters, self.stage, self.key = cfg, parameters, stage, key
        self.compression, self.dtype, self.device = compression, dtype, device
        self.shape = parameters.teacher_shape(cfg, stage)
        self.assignment = assignment
        self.records = or_black_image(records, stage.classes)
        class_index = torch.zeros(stage.data.classes, dtype=torch.int64)
        class_index[list(stage.classes)] = torch.arange(len(stage.classes))
        self.labels = class_index[self.records.labels]
        self.stacks: list[_Stack] = []
        self._memory: mmap.mmap | None = None
        self.rounds_done = 0
        self.consistent = False  # all teachers have completed `rounds_done` rounds
        concurrent = len(stage.parties) * stage.count
        self.threads = max(1, len(os.sched_getaffinity(0)) // concurrent)

    @property
    def bytes(self) -> int:
        """The memory of the teachers and their optimisers."""
        return self.shape.state_bytes(len(self.assignment.sizes), self.dtype)

    def initialise(self) -> None:
        """Allocate memory if there is none and start with fresh teachers."""
        if not self.stacks:
            self.stacks = self._allocate(len(self.assignment.sizes))
        for stack in self.stacks:
            generator = torch_generator(*self.key, "teachers", stack.start)
            stack.flat.copy_(initial_parameters(self.shape, stack.teachers, generator, self.dtype))
            stack.squares.zero_()
        self.rounds_done, self.consistent = 0, True

    def _allocate(self, teachers: int) -> list[_Stack]:
        """Memory for all teachers: on the CPU one mapping, which the system takes back as a whole,
        independent of this process's allocator."""
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

    def free(self) -> None:
        """Release the memory."""
        self.stacks, self._memory, self.consistent = [], None, False

    def run_round(self, query: Query, *, vote: bool = True) -> VoteCounts | None:
        """Train all teachers for one round and sum their votes; without `vote`, train only."""
        if query.number != self.rounds_done or not self.consistent:
            raise RuntimeError(f"teachers are at round {self.rounds_done}, not {query.number}")
        batch = self.assignment.batch(self.parameters.images, *self.key, "batch", query.number)
        remaining, lock = iter(self.stacks), threading.Lock()

        def worker(_: int) -> VoteCounts:
            parameters, rule = self.parameters, self.assignment.rule
            return VoteCounts.count(parameters.bounds, parameters.images, votes(), rule)

        def votes() -> Iterator[Tensor]:
            """Train one remaining stack after another and yield its votes."""
            scratch = self.stacks[0].flat.new_empty(2, len(self.stacks[0].flat))
            while (stack := _next(remaining, lock)) is not None:
                self._train(stack, query, batch, scratch[:, : len(stack.flat)])
                if vote:
                    yield self._votes(stack, query)

        self.consistent = False
        if self.threads == 1:
            counts = [worker(0)]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                counts = list(pool.map(worker, range(self.threads)))
        self.rounds_done, self.consistent = query.number + 1, True
        return VoteCounts.total(counts) if vote else None

    def _train(self, stack: _Stack, query: Query, batch: Tensor, scratch: Tensor) -> None:
        indices = batch[stack.start : stack.start + stack.teachers]
        labels = self.labels[indices].to(self.device)
        pixels = self.records.pixels(indices.flatten())
        real = _unfolded(pixels, stack.flat).unflatten(0, indices.shape)
        latents = torch.arange(indices.shape[1], device=self.device)
        rows = torch.cat([real, query.made[latents, labels]], 1)
        model = TeacherStack(self.shape, self.shape.views(stack.flat, stack.teachers))
        gradient, mean = scratch
        gradients = self.shape.views(gradient, stack.teachers)
        mean.zero_()
        both = labels.repeat(1, 2)
        for step in range(self._steps(query.number)):
            model.training_gradient(rows, both, gradients)
            if query.number and step == 0:
                mean.copy_(gradient)
            steps_done = self._steps_before(query.number) + step
            adam_step(stack.flat, gradient, mean, stack.squares, steps_done)

    def _votes(self, stack: _Stack, query: Query) -> Tensor:
        model = TeacherStack(self.shape, self.shape.views(stack.flat, stack.teachers))
        rows = query.images.expand(stack.teachers, -1, -1, -1)
        labels = query.labels.expand(stack.teachers, -1)
        gradients = model.image_gradient(rows, labels).permute(0, 1, 4, 2, 3).flatten(2).float()
        votes = self.compression(gradients, query.number, stack.start)
        has_records = self.assignment.sizes[stack.start : stack.start + stack.teachers] > 0
        return votes * has_records.to(votes.device)[:, None, None]

    def _steps(self, number: int) -> int:
        return self.cfg.teacher_steps if number else self.cfg.first_updates

    def _steps_before(self, number: int) -> int:
        return self.cfg.first_updates + (number - 1) * self.cfg.teacher_steps if number else 0

    def fingerprint(self) -> str:
        """A hash of all that saved teachers depend on: settings, key and records."""
        parameters = self.parameters
        settings = repr((self.cfg, self.key, self.shape, parameters.rounds, parameters.multiplier))
        data = self.assignment.indices.numpy().tobytes() + self.labels.numpy().tobytes()
        return hashlib.sha256(settings.encode() + data).hexdigest()

    def tensors(self) -> Sequence[Tensor]:
        """All tensors that training changes, in a fixed order."""
        return [part for s in self.stacks for part in (s.flat, s.squares)]


def _next(stacks: Iterator[_Stack], lock: threading.Lock) -> _Stack | None:
    """The next stack that no thread has taken."""
    with lock:
        return next(stacks, None)

"""The joint form of sketch_teach: the sketch and the teacher are sums over all parties.

Both releases of sketch_teach are sums over records, so they are sums over parties as well. Three or
four rounds add up the answers to the sketch's queries. The server trains on them what a party
trains by itself in sketch_teach. In each of T further rounds the parties return the clipped
gradient sums of the server's linear head on their records. The features travel with the first of
these rounds, and parties store them. `common.noise_placement` describes where the noise is added.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.messages import Arrays, Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.noise_placement import (
    NoisePlacementConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.sketch_teach.class_model import MAX_DIRECTIONS
from fedsynth.methods.sketch_teach.config import ReleaseParameters, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import FeatureMap, gradient_factors
from fedsynth.methods.sketch_teach.queries import QUERIES, Query
from fedsynth.methods.sketch_teach.sketch_teach import (
    SketchTeachMethod,
    feature_cost,
    release_event,
    rows_and_indices,
    synthesis_cost,
)
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    estimate_class_models,
    negative_examples,
    without_classes,
)
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.nn.transforms.scattering import NUMBERS
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum
from fedsynth.privacy.party_data import PartyData
from fedsynth.storage.state_file import read_state, write_state

TEACH = "teach"
WEIGHTS = "weights"  # the array of the head's weights in a request


@dataclass(frozen=True)
class SketchTeachJointConfig(SketchTeachConfig, NoisePlacementConfig):
    """The settings of sketch_teach, and where the noise is added."""


class SketchTeachJoint(SketchTeachMethod[SketchTeachJointConfig]):
    """3 or 4 + T rounds with all parties of a stage, for one set of images."""

    name = "sketch_teach_joint"
    summary = "sketch_teach as a conversation: one sketch and one teacher from all parties' sums"

    @staticmethod
    def _parameters(cfg: SketchTeachJointConfig, stage: Stage, budget: Budget) -> ReleaseParameters:
        terms = _noise_terms(cfg, stage)
        return ReleaseParameters.derive(cfg, stage, budget, _records(stage), terms)

    def plan(self, cfg: SketchTeachJointConfig, stage: Stage, budget: Budget) -> Plan:
        parameters = self._parameters(cfg, stage, budget)
        event = release_event(parameters)
        with torch.device("meta"):
            net = PoolNet(cfg.width, len(stage.seen), stage.data.shape[-1])
        width = _row_width(cfg, net)
        gradients = 4 * len(stage.seen) * (width + 1) * parameters.steps
        features = 4 * (width * (width + 1) + sum(p.numel() for p in net.parameters()))
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                PartyPlan(
                    info.party,
                    info.records,
                    event,
                    steps=len(parameters.sketch_multipliers) + parameters.steps,
                    noise_multiplier=parameters.teacher_multiplier,
                    bytes_up=4 * query_values(parameters, len(stage.classes)) + gradients,
                    bytes_down=features + gradients,
                    cost=feature_cost(cfg, info.records),
                ),
            )
            for info in stage.parties
        )
        return Plan(
            self.name,
            stage,
            budget,
            parties,
            rounds=len(parameters.sketch_multipliers) + parameters.steps,
            images=parameters.spc * len(stage.classes),
            server_cost=synthesis_cost(cfg, parameters, len(stage.classes)),
            assumes=("the number of records of all parties together", "the classes of a stage"),
        )

    def party(self, ctx: PartyContext[SketchTeachJointConfig], request: Request) -> Release:
        cfg, stage = ctx.config, ctx.plan.stage
        parameters = self._parameters(cfg, stage, ctx.plan.budget)
        if request.kind in QUERIES:
            query = Query(request.kind, parameters.sketch, stage.classes, request.arrays)
            query.check_shapes(parameters.cells)
            multiplier = parameters.sketch_multipliers[query.number]
            total = query.answer(
                ctx.data, ctx.guard, noise_multiplier=multiplier, noise_at=cfg.noise_at
            )
        else:
            weights = _head_weights(cfg, stage, request).to(ctx.device)
            digest = store_features(ctx.data, cfg, stage, request)
            rows = ctx.data.remember(digest, partial(_rows, cfg, ctx.data, digest, ctx.device))
            mechanism = OuterProductSum(
                factors=rows.map(lambda features: gradient_factors(weights, *features)),
                shape=weights.shape,
                clip=cfg.clip,
                noise_multiplier=parameters.teacher_multiplier,
            )
            (total,) = ctx.guard.apply(
                mechanism, ctx.data, call=request.round, noise_at=cfg.noise_at
            )
        return ctx.guard.release({"sum": total})

    def serve(self, ctx: ServerContext[SketchTeachJointConfig]) -> Outcome:
        cfg, stage, records = ctx.config, ctx.plan.stage, _records(ctx.plan.stage)
        parameters = self._parameters(cfg, stage, ctx.plan.budget)
        key = (ctx.seed, self.name, stage.index)
        models = estimate_class_models(
            partial(_ask, ctx, parameters),
            parameters,
            stage.classes,
            records=records,
            key=key,
            noise_scale=math.sqrt(len(stage.parties))
            if cfg.noise_at == NoisePlacement.PARTY
            else 1.0,
        )
        synthesizer = SetSynthesizer(
            cfg,
            parameters,
            stage.data,
            models,
            earlier=without_classes(stage.classes, negative_examples(cfg, ctx.inherited)),
            key=key,
            device=ctx.device,
        )
        feature_arrays = synthesizer.features.arrays()
        features = {**feature_arrays, "order": torch.tensor(synthesizer.order)}
        head, digest = synthesizer.head(), ""
        # The checkpoint holds the features too: a resumed server must send the very same ones.
        for step in ctx.rounds(parameters.steps, {**head.state, **feature_arrays}):
            digest = digest or features_digest(features)
            total = aggregate_parties(
                ctx,
                Request(
                    TEACH,
                    len(QUERIES) + step,
                    arrays={WEIGHTS: head.weights, **(features if step == 0 else {})},
                    scalars={"features": digest},
                ),
                shapes={"sum": head.weights.shape},
                bound=cfg.clip,
                noise_multiplier=parameters.teacher_multiplier,
            ).arrays["sum"]
            gradient = synthesizer.mean_gradient(head.weights, total.to(ctx.device), records)
            head.step(step, gradient)
        return synthesizer.synthesize(head.result())


def _ask(
    ctx: ServerContext[SketchTeachJointConfig], parameters: ReleaseParameters, query: Query
) -> torch.Tensor:
    """The noised sum of all parties' answers to a query."""
    return aggregate_parties(
        ctx,
        Request(query.kind, query.number, arrays=query.public),
        shapes={"sum": query.shape},
        bound=query.bound,
        noise_multiplier=parameters.sketch_multipliers[query.number],
    ).arrays["sum"]


def _records(stage: Stage) -> int:
    return sum(info.records for info in stage.parties)


def _noise_terms(cfg: SketchTeachJointConfig, stage: Stage) -> int:
    """The number of times that a sum over parties contains the noise of one party."""
    return len(stage.parties) if cfg.noise_at == NoisePlacement.PARTY else 1


def query_values(parameters: ReleaseParameters, classes: int) -> int:
    """The number of values in the answers to all queries, with the most directions possible."""
    width = parameters.sketch.width
    directions = min(width, MAX_DIRECTIONS)
    cells = classes * parameters.cells * (directions + 1) ** 2 if parameters.cells > 1 else 0
    return classes * (width + 1) + width**2 + classes * directions**2 + cells


def features_digest(arrays: Arrays) -> str:
    """The name under which a party stores these features."""
    return Request("features", arrays=arrays).digest()


def store_features(
    data: PartyData, cfg: SketchTeachJointConfig, stage: Stage, request: Request
) -> str:
    """Store the features of this request, if it holds any, on the party's disk.

    Returns:
        The digest of the features that the request refers to.

    Raises:
        Refused: The arrays are no features of this stage, or no features of this digest are known.
    """
    digest = str(request.scalar("features"))
    arrays = {name: value for name, value in request.arrays.items() if name != WEIGHTS}
    if arrays:
        _check_features(cfg, stage, replace(request, arrays=arrays))
        if digest != features_digest(arrays):
            raise request.refused("names features by a digest that is not theirs.")
        write_state(_features_file(data, digest), arrays)
    elif not re.fullmatch("[0-9a-f]{64}", digest) or not _features_file(data, digest).exists():
        raise request.refused(
            "refers to features that this party does not have: its folder or the server's was "
            "removed in the middle of a stage. Start the run anew."
        )
    return digest


def _features_file(data: PartyData, digest: str) -> Path:
    return data.file(f"features-{digest}.state")


def _head_weights(cfg: SketchTeachJointConfig, stage: Stage, request: Request) -> torch.Tensor:
    """The weights of the head in a request, with a row per class, of which there is at least one.

    Raises:
        Refused: They have another form.
    """
    given = request.arrays.get(WEIGHTS, torch.empty(0))
    classes = min(max(1, given.shape[0]), len(stage.seen)) if given.dim() else 1
    with torch.device("meta"):
        net = PoolNet(cfg.width, classes, stage.data.shape[-1])
    return request.array(WEIGHTS, (classes, _row_width(cfg, net) + 1))


def _row_width(cfg: SketchTeachConfig, net: PoolNet) -> int:
    """The length of a feature row without its constant."""
    return net.features + (NUMBERS if cfg.scattering else 0)


def _check_features(cfg: SketchTeachJointConfig, stage: Stage, request: Request) -> None:
    """Refuse arrays that are no feature map of this stage, before a record is looked at."""
    order = request.arrays.get("order", torch.empty(0))
    classes = min(max(1, order.numel()), len(stage.seen))
    with torch.device("meta"):
        net = PoolNet(cfg.width, classes, stage.data.shape[-1])
        width = _row_width(cfg, net)
        like = FeatureMap(
            net,
            torch.empty(2 if cfg.scattering else 1),
            torch.empty(width),
            torch.empty(width, width),
        ).arrays()
        like = {**like, "order": torch.empty(classes, dtype=torch.int64)}
    request.exact_arrays(like)
    found = order.tolist()
    if len(set(found)) != len(found) or not set(found) <= set(stage.seen):
        raise request.refused("has an order of other classes than those of the stage.")


def _rows(
    cfg: SketchTeachConfig, data: PartyData, digest: str, device: torch.device, records: Records
) -> tuple[torch.Tensor, torch.Tensor]:
    """The feature rows and class indices of the records, by features that were stored before."""
    arrays = read_state(_features_file(data, digest))
    order = arrays["order"].tolist()
    features = FeatureMap.from_arrays(arrays, cfg.width, len(order), device)
    return rows_and_indices(features, order, records)

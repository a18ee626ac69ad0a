"""Distribution matching without noise: exact mean features of real records."""

from __future__ import annotations

import tiny_runs as tiny
import torch

from fedsynth.experiment.scenario import party_records
from fedsynth.methods.dpdc.distribution_matching import CondensedImages


def test_with_whole_classes_the_target_is_the_mean_feature_of_each_class(
    here, tmp_path, monkeypatch
):
    targets = []
    match = CondensedImages.match

    def spy(images, step, real, scale, bound):
        targets.append((images, step, real, bound))
        match(images, step, real, scale, bound)

    monkeypatch.setattr(CondensedImages, "match", spy)
    job = tiny.tiny_job("dm", tmp_path / "run", changes={"batch": 1000, "iterations": 2})
    tiny.release(job, here)
    assert len(targets) == 2 * 2  # two parties
    records = party_records(job.scenario, 0)
    classes = set(records.labels.tolist())
    # Parties are answered in any order, so the first party is known by its classes.
    own = [target for target in targets if set(target[0].classes) == classes]
    assert len(own) == 2
    images, step, real, bound = own[-1]  # the network is that of the last step
    assert bound is None
    for row, label in zip(real, images.classes, strict=True):
        members = torch.nonzero(records.labels == label).flatten()
        features = images.real_rows(step, records.pixels(members), records.labels[members])
        torch.testing.assert_close(row, features.mean(0), rtol=1e-4, atol=1e-5)

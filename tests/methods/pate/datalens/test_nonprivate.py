"""The conditional DCGAN without privacy: its batches, its labels and its released images."""

from __future__ import annotations

from collections import Counter

import tiny_runs as tiny
import torch

from fedsynth.experiment.scenario import party_records
from fedsynth.nn.gan.label_discriminator import LabelDiscriminator
from fedsynth.storage.run_directory import RunDirectory


def test_every_record_is_seen_once_per_epoch_beside_images_of_the_same_labels(
    here, tmp_path, monkeypatch
):
    calls = []
    forward = LabelDiscriminator.forward

    def spy(net, images, labels):
        calls.append((images.detach(), labels, images.requires_grad))
        return forward(net, images, labels)

    monkeypatch.setattr(LabelDiscriminator, "forward", spy)
    job = tiny.tiny_job("dc_gan", tmp_path / "run", changes={"epochs": 1, "batch": 50})
    tiny.release(job, here)
    steps = [calls[i : i + 4] for i in range(0, len(calls), 4)]  # real, made, two of the generator
    for real, made, *generated in steps:
        assert not made[2]
        assert all(made_for_it[2] for made_for_it in generated)
        assert all(torch.equal(real[1], other[1]) for other in (made, *generated))
        assert not torch.equal(real[0], made[0])
    shown = sum(len(step[0][0]) for step in steps)
    records = [len(party_records(job.scenario, party).labels) for party in range(2)]
    assert shown == sum(count // 50 * 50 for count in records)
    pixels = [row.flatten() for step in steps for row in step[0][0]]
    assert len({tuple(row.tolist()) for row in pixels}) == shown


def test_it_releases_as_many_images_of_each_class_classes_in_turn(here, tmp_path):
    job = tiny.tiny_job("dc_gan", tmp_path / "run", changes={"spc": 3})
    tiny.release(job, here)
    released = RunDirectory(tmp_path / "run").releases.load(job.name, 1)
    assert set(Counter(released.labels.tolist()).values()) == {3}
    assert len(set(released.labels[:5].tolist())) == 5

"""The GAN without privacy: one critic on all records, and a generator on its exact gradients."""

from __future__ import annotations

import tiny_runs as tiny
import torch

from fedsynth.experiment.scenario import party_records
from fedsynth.methods.gs_wgan.critic import TrainedCritic
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer
from fedsynth.storage.run_directory import RunDirectory

STEPS, BATCH = 3, 4


def test_the_generator_follows_the_exact_gradients_of_a_critic_on_all_records(
    here, tmp_path, monkeypatch
):
    seen, gradients, followed = [], [], []
    train, upstream, step = TrainedCritic.train, TrainedCritic.upstream, GeneratorTrainer.step

    def spied_train(critic, records, *arguments):
        seen.append(len(records.labels))
        train(critic, records, *arguments)

    def spied_upstream(critic, images, labels):
        gradients.append(upstream(critic, images, labels))
        return gradients[-1]

    def spied_step(trainer, number, images, of_images):
        followed.append(of_images)
        step(trainer, number, images, of_images)

    monkeypatch.setattr(TrainedCritic, "train", spied_train)
    monkeypatch.setattr(TrainedCritic, "upstream", spied_upstream)
    monkeypatch.setattr(GeneratorTrainer, "step", spied_step)
    job = tiny.tiny_job("gan", tmp_path / "run", changes={"steps": STEPS, "batch": BATCH})
    tiny.release(job, here)
    records = [len(party_records(job.scenario, party).labels) for party in range(2)]
    assert sorted(seen) == sorted(STEPS * records)
    assert len(followed) == 2 * STEPS
    for exact, used in zip(gradients, followed, strict=True):
        torch.testing.assert_close(used, exact / BATCH)


def test_each_party_releases_as_many_images_of_its_classes(here, tmp_path):
    job = tiny.tiny_job("gan", tmp_path / "run", changes={"spc": 3})
    tiny.release(job, here)
    released = RunDirectory(tmp_path / "run").releases.load(job.name, 1)
    assert sorted(released.labels.tolist()) == sorted(3 * sorted(set(released.labels.tolist())))
    assert released.pixels().shape[1:] == (1, 28, 28)

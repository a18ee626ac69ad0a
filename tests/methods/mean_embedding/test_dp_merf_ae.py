"""DP-MERF on codes: the autoencoder's norm, its loss, and how the budget is divided."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget, DatasetInfo
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.mean_embedding.dp_merf_ae import DPMERFAEConfig, latent_features, on_sphere
from fedsynth.methods.registry import method
from fedsynth.nn.autoencoder import make_autoencoder
from fedsynth.privacy.accounting.accountant import epsilon

MERF = method("dp_merf_ae")
FACTS = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.25,))
(TASK,) = scenario_stages(
    ScenarioConfig(data="fashion_mnist", partition="single", parties=1, stages="together")
)


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 1000), st.sampled_from([0.0, 1e-3, 1.0]))
@settings(max_examples=15, deadline=None)
def test_features_of_codes_have_norm_one_whatever_the_autoencoder_learnt(seed, brightness):
    net = make_autoencoder(FACTS, 3, 5, seed)
    rows = latent_features(MERF.name, DPMERFAEConfig(features=20, ae_latent=3), net, seed)(
        pixels(6, seed) * brightness
    )
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6), rtol=0, atol=1e-5)


def test_drawn_codes_lie_where_encoded_ones_do_and_have_their_features():
    net = make_autoencoder(FACTS, 3, 5, "x")
    phi = latent_features(MERF.name, DPMERFAEConfig(features=20, ae_latent=3), net, 0)
    codes = net.encode(pixels(4)).detach()
    torch.testing.assert_close(on_sphere((codes + 1) / 2), codes)
    torch.testing.assert_close(phi.of_generated((codes + 1) / 2), phi(pixels(4)))


@pytest.mark.parametrize("accounting", ["rdp", "rdp_classic"])
def test_both_together_cost_the_budget_and_the_autoencoder_its_share(accounting):
    cfg = DPMERFAEConfig(ae_share=0.3, ae_steps=100)
    (share,) = MERF.plan(cfg, TASK, Budget(2.0, 1e-5, accounting=accounting)).parties
    whole = share.paper_event if accounting == "rdp_classic" else share.event
    assert whole is not None
    assert 1.99 <= epsilon(whole, 1e-5, accounting) <= 2.0
    training = share.event.events[0]
    assert 0.599 <= epsilon(training, 1e-5, accounting) <= 0.6
    assert share.sampling_rate == pytest.approx(500 / TASK.parties[0].records)


def test_more_for_the_autoencoder_is_less_for_the_embedding():
    budget = Budget(2.0, 1e-5, accounting="rdp")
    noises = [
        MERF.plan(DPMERFAEConfig(ae_share=share, ae_steps=50), TASK, budget).parties[0]
        for share in (0.2, 0.8)
    ]
    assert noises[0].noise_multiplier < noises[1].noise_multiplier

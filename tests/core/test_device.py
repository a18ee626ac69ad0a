"""Devices by name: what is used, what is refused, and how values are moved."""

from __future__ import annotations

import pytest
import torch
from pretend_device import MixedDevices, pretended_gpu

from fedsynth.core.device import checked_device, moved, resolved_device
from fedsynth.core.errors import UserError


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:17"])
def test_a_device_is_a_word(name: str) -> None:
    assert checked_device(name) == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "CPU", "cudaa", "meta", ""])
def test_another_word_is_refused_with_those_that_are_allowed(name: str) -> None:
    with pytest.raises(UserError, match=r"device='.*' is no device.*Allowed: auto, cpu, cuda"):
        checked_device(name)
    with pytest.raises(UserError, match=r"Did you mean 'cuda'"):
        checked_device("cudaa")


def test_a_gpu_is_refused_by_a_torch_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never replaced by the CPU, whose results have other last bits."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert resolved_device("auto") == resolved_device("cpu") == torch.device("cpu")
    for name in ("cuda", "cuda:0"):
        with pytest.raises(UserError, match=f"device={name}: .*built for the CPU only.*device=cpu"):
            resolved_device(name)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(UserError, match="finds no usable GPU"):
        resolved_device("cuda")


def test_a_gpu_is_used_with_all_digits_and_alike_every_time() -> None:
    with pretended_gpu():
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        assert resolved_device("auto") == resolved_device("cuda") == torch.device("cuda")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
        with pytest.raises(UserError, match=r"cuda:1: this process can use 1 GPU"):
            resolved_device("cuda:1")
    assert not torch.are_deterministic_algorithms_enabled()


def test_values_come_over_in_one_copy_per_number_type() -> None:
    plain = [torch.arange(6.0).view(2, 3), torch.ones(0), torch.tensor(3.0), torch.arange(3)]
    assert moved(plain, torch.device("cpu")) == plain
    with pretended_gpu() as gpu:
        there = moved(plain, torch.device("cuda"))
        assert {str(value.device) for value in there} == {"cuda:0"}
        assert not gpu.syncs
        back = moved(there, torch.device("cpu"))
        assert sum(gpu.syncs.values()) == 2  # float32 and int64
    for value, again in zip(plain, back, strict=True):
        assert value.dtype == again.dtype
        assert torch.equal(value, again)


def test_the_pretended_gpu_notices() -> None:
    """The rules of the support module itself."""
    with pretended_gpu() as gpu:
        there = torch.ones(3, 3, device="cuda")
        net = torch.nn.Linear(3, 2).to("cuda")
        net(there * 2 + torch.tensor(1.0)).sum().backward()
        assert next(net.parameters()).grad.device.type == "cuda"  # type: ignore[union-attr]
        with pytest.raises(MixedDevices):
            net(torch.ones(1, 3))
        with pytest.raises(MixedDevices):
            there[0] + torch.ones(3)
        with pytest.raises(MixedDevices):
            torch.randn(2, generator=torch.Generator(), device="cuda")
        with pytest.raises(TypeError):
            there.numpy()
        assert not gpu.syncs
        waits = (
            lambda: float(there.sum()),
            lambda: bool((there > 0).all()),
            lambda: there[there > 0],
            there.nonzero,
            there.cpu,
            there.tolist,
            there.unique,
        )
        for number, wait in enumerate(waits, 1):
            wait()
            assert sum(gpu.syncs.values()) >= number

import hashlib

import pytest
import torch

from fedsynth.core.tensor_bytes import tensor_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (), (3, 2), (2, 3, 4)])
def test_the_bytes_are_those_of_numpy(dtype, shape):
    tensor = torch.arange(24).to(dtype)[: torch.Size(shape).numel()].reshape(shape)
    for some in (tensor, tensor.transpose(0, -1) if shape else tensor):
        known = some.numpy().tobytes()
        assert bytes(tensor_bytes(some)) == known
        assert hashlib.sha256(tensor_bytes(some)).digest() == hashlib.sha256(known).digest()


def test_nothing_is_copied():
    tensor = torch.zeros(5)
    view = tensor_bytes(tensor)
    tensor.fill_(1.0)
    assert bytes(view) == torch.ones(5).numpy().tobytes()

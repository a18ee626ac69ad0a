"""A network as a sequence of hand-written layers: forward, one backward, all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import zip_longest
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from fedsynth.nn.per_example.fused_first_block import FusedConvNormReluPool
from fedsynth.nn.per_example.gradient_rows import PerExampleGradient
from fedsynth.nn.per_example.layers import (
    AveragePool,
    Convolution,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Norm,
    Relu,
    norm_groups,
)

_FEW_PATCH_ROWS = 64  # with more, writing out the patches of an image costs more than it saves
_NORMS = (nn.GroupNorm, nn.InstanceNorm2d)
_ON_PLANES = (nn.Conv2d, nn.AvgPool2d, nn.MaxPool2d, *_NORMS)


class UnsupportedModel(Exception):
    """A network that cannot be run layer by layer; the text gives the reason."""


class LayerSequence:
    """The layers of a network in the order of execution, each used once and each hand-written.

    `weights` are the present weights of the model in the order of the layers, `parameters` the same
    in the order of `model.parameters()`.

    Args:
        model: The network.
        shape: Shape of one record, on which the choice of layers depends.
        compute: Type of matrix products and convolutions.
        summed: Prepare for `summed_gradients` only, which is faster.

    Raises:
        UnsupportedModel: The network needs automatic differentiation.
    """

    def __init__(
        self,
        model: nn.Module,
        shape: Sequence[int],
        compute: torch.dtype = torch.float32,
        summed: bool = False,
    ) -> None:
        modules = layers_in_order(model)
        _check_planes(modules, shape)
        self.layers: list[Layer] = []
        block = _first_block(modules, shape, compute)
        if block is not None:
            self.layers.append(block)
            modules = modules[4:]
        for module, following in zip_longest(modules, modules[1:]):
            self.layers.append(_layer(module, following, compute, summed))
        self.weights = [weight for layer in self.layers for weight in layer.weights]
        self.parameters = list(model.parameters())
        check_weights(self.parameters, self.weights)

    @torch.no_grad()
    def forward(self, x: Tensor, keep: bool = True) -> Tensor:
        """The logits of a batch. Without `keep` nothing is stored for a backward pass, so that
        memory that is still in the cache is reused."""
        x = x.to(self.weights[0].dtype)
        if isinstance(self.layers[0], Relu):
            x = x.clone()
        for layer in self.layers:
            x = (layer if keep else copy(layer)).forward(x)
        return x

    @torch.no_grad()
    def backward(self, g: Tensor) -> None:
        """Propagate the gradient at the logits back through all layers."""
        for layer in reversed(self.layers):
            g = layer.backward(g, onward=layer is not self.layers[0])

    @torch.no_grad()
    def per_example_gradients(self) -> list[PerExampleGradient]:
        """The gradients of all records of the last batch, for each of `weights`."""
        return [rows for layer in self.layers for rows in layer.per_example_gradients()]

    @torch.no_grad()
    def summed_gradients(self) -> list[Tensor]:
        """The gradient summed over the last batch, for each of `weights`."""
        return [total for layer in self.layers for total in layer.summed_gradients()]


def layers_in_order(model: nn.Module) -> list[nn.Module]:
    """The layers of a network in the order of execution, each of a kind that is hand-written.

    Raises:
        UnsupportedModel: The network does anything else than call them one after the other.
    """
    for part in model.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise UnsupportedModel(f"its {type(part).__name__} has hooks")
    modules = [m for m in _leaves(model) if type(m) is not nn.Identity]
    for module in modules:
        _check(module)
    return modules


def _leaves(model: nn.Module) -> list[nn.Module]:
    """The leaf modules of a network whose forward calls them one after the other.

    A network that `fx` cannot or need not trace lists its layers in `layer_sequence()`."""
    if type(model) is nn.Sequential:
        return [leaf for part in model for leaf in _leaves(part)]
    if not model._modules:
        return [model]
    owner = _owner(model, "layer_sequence")
    if owner is not None and owner is _owner(model, "forward"):  # no subclass overrides `forward`
        return [leaf for part in owner.layer_sequence(model) for leaf in _leaves(part)]
    if model in _no_sequences:
        raise UnsupportedModel(_no_sequences[model])
    try:
        return _traced_leaves(model)
    except UnsupportedModel as reason:
        _no_sequences[model] = str(reason)
        raise


_no_sequences: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""Networks found to be no sequence, and why: tracing one takes about as long as a small step."""


def _traced_leaves(model: nn.Module) -> list[nn.Module]:
    try:
        nodes = list(fx.Tracer().trace(model).nodes)
    except Exception as error:  # the tracer runs foreign code, which may raise anything
        raise UnsupportedModel(f"its forward cannot be traced: {error}") from error
    steps = nodes[1:-1]
    for node, before in zip(nodes[1:], nodes, strict=False):
        if node.op not in {"output", "call_module"}:
            raise UnsupportedModel(
                f"its forward does more than call layers: {node.op} {node.target}"
            )
        if node.args != (before,) or node.kwargs:
            raise UnsupportedModel(f"its layers do not form one sequence: {node.target}")
    return [model.get_submodule(str(node.target)) for node in steps]


def _owner(model: nn.Module, name: str) -> Any:
    return next((kind for kind in type(model).__mro__ if name in vars(kind)), None)


def _check(module: nn.Module) -> None:
    kind = type(module)
    if kind is nn.Conv2d:
        possible = module.groups == 1 and module.padding_mode == "zeros"
        possible = possible and not isinstance(module.padding, str)
    elif kind is nn.AvgPool2d:
        side = module.kernel_size
        possible = not isinstance(side, tuple) or side[0] == side[1]
        possible = possible and module.stride == side and module.padding in {0, (0, 0)}
        possible = possible and not module.divisor_override
    elif kind is nn.MaxPool2d:
        possible = module.padding in {0, (0, 0)} and module.dilation in {1, (1, 1)}
        possible = possible and not (module.ceil_mode or module.return_indices)
    elif kind is nn.InstanceNorm2d:
        possible = not module.track_running_stats
    elif kind is nn.Flatten:
        possible = module.start_dim == 1 and module.end_dim == -1
    else:
        possible = kind in {nn.Linear, nn.ReLU, nn.GroupNorm}
    if not possible:
        raise UnsupportedModel(f"no hand-written layer for {module}")


def _check_planes(modules: list[nn.Module], shape: Sequence[int]) -> None:
    planes = len(shape) == 3
    for module in modules:
        if isinstance(module, nn.Flatten):
            planes = False
        elif isinstance(module, _ON_PLANES) != planes and not isinstance(module, nn.ReLU):
            raise UnsupportedModel(f"{module} gets records of an unusual shape")


def check_weights(parameters: Sequence[Tensor], weights: list[Tensor]) -> None:
    """Refuse layers whose `weights` are not exactly the parameters of the network.

    Raises:
        UnsupportedModel: A weight is shared, missing, frozen or of another type or device.
    """
    in_layers, in_model = [id(w) for w in weights], [id(p) for p in parameters]
    if len(set(in_layers)) != len(in_layers) or set(in_layers) != set(in_model):
        raise UnsupportedModel("a weight is shared, or used outside the layers")
    if not all(w.requires_grad for w in weights):
        raise UnsupportedModel("some weights are frozen")
    if len({(w.dtype, w.device) for w in weights}) > 1:
        raise UnsupportedModel("its weights have several types or devices")


def _first_block(
    modules: list[nn.Module], shape: Sequence[int], compute: torch.dtype
) -> FusedConvNormReluPool | None:
    match modules[:4]:
        case [
            nn.Conv2d() as convolution,
            (nn.GroupNorm() | nn.InstanceNorm2d()) as norm,
            nn.ReLU(),
            nn.AvgPool2d() as pool,
        ]:
            block = FusedConvNormReluPool(convolution, norm, _side(pool), compute)
            simple = convolution.stride == (1, 1) and convolution.dilation == (1, 1)
            simple = simple and norm_groups(norm) == convolution.out_channels
            few = convolution.weight[0].numel() <= _FEW_PATCH_ROWS
            whole = all(side > 0 and side % _side(pool) == 0 for side in block.sides(shape))
            return block if simple and few and whole else None
    return None


def _side(pool: nn.AvgPool2d) -> int:
    return pool.kernel_size if isinstance(pool.kernel_size, int) else pool.kernel_size[0]


def _layer(
    module: nn.Module, following: nn.Module | None, compute: torch.dtype, summed: bool
) -> Layer:
    if isinstance(module, nn.Conv2d):
        bias_cancels = (
            isinstance(following, _NORMS) and norm_groups(following) == module.out_channels
        )
        return Convolution(module, compute, bias_cancels, summed)
    if isinstance(module, _NORMS):
        return Norm(module)
    if isinstance(module, nn.AvgPool2d):
        return AveragePool(module)
    if isinstance(module, nn.MaxPool2d):
        return MaxPool(module)
    if isinstance(module, nn.Linear):
        return Linear(module)
    return Flatten() if isinstance(module, nn.Flatten) else Relu()

"""The gradient at images of a distance between a network's gradient on them and a given one.

Gradient matching moves images such that the gradient of the training loss on them, g, comes close
to another gradient. The step needs d distance(g(images)) / d images, a second derivative. With
v = d distance / d g held fixed, this is the gradient at the images of <v, g>, and so the derivative
of the *first* gradient at the images when the weights move along v (Pearlmutter 1994). It is
computed here by one forward and one backward pass, then the same two passes differentiated along v.

Automatic differentiation builds and walks a graph of graphs instead; for the ConvNet on one thread
it spends more than half of its time in the second derivative of the norm and in pools. Here
activations are channels last, an instance norm and its derivatives are a few means per image and
channel and one linear combination, and the first block (convolution, norm, ReLU, pool) is a small
matrix per image that acts on the patches under its kernel. `benchmarks/psg_step.py` compares both.

Nothing here is private or touches records: the gradient that is matched was released before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.nn.per_example.layers import add, aten
from fedsynth.nn.per_example.sequential import UnsupportedModel, check_weights, layers_in_order

Distance = Callable[[Sequence[Tensor]], Tensor]
"""A number from the gradients of the weights of two or more dimensions, in the order of
`model.parameters()`. The gradients of biases and norms do not take part."""

CHUNK_FLOATS = 1 << 22  # of the first activation of the images that are processed together


def matching_gradient(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    distance: Distance,
    *,
    compute: torch.dtype | None = None,
) -> Tensor:
    """The gradient at the images of `distance(gradient of the mean cross-entropy on them)`.

    Args:
        model: The network; any works, blocks of [convolution, instance norm, ReLU, mean pool] and
            a linear layer are fast on a CPU.
        images: Its inputs, [n, c, h, w].
        labels: Class indices, [n].
        distance: A differentiable function of the gradients.
        compute: Type of convolutions and products of the fast form, by default that of the weights.

    Returns:
        A tensor of the shape and type of `images`.
    """
    if images.device.type == "cpu":
        try:
            net = _read(model, images.shape)
        except UnsupportedModel:
            pass
        else:
            return _by_hand(net, images, labels, distance, compute or net.head.weight.dtype)
    return by_autograd(model, images, labels, distance)


def by_autograd(model: nn.Module, images: Tensor, labels: Tensor, distance: Distance) -> Tensor:
    """`matching_gradient` by automatic differentiation twice."""
    leaf = images.detach().requires_grad_()
    weights = [p for p in model.parameters() if p.dim() >= 2]
    loss = F.cross_entropy(model(leaf), labels)
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    (result,) = torch.autograd.grad(distance(gradients), leaf)
    return result


@dataclass(frozen=True)
class _Block:
    """Convolution of stride 1, norm of single channels, ReLU, mean pool of windows."""

    convolution: nn.Conv2d
    norm: nn.GroupNorm | nn.InstanceNorm2d
    side: int

    @property
    def padding(self) -> tuple[int, int]:
        height, width = map(int, self.convolution.padding)
        return height, width

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the convolution's output."""
        (kh, kw), (ph, pw) = self.convolution.kernel_size, self.padding
        return height + 2 * ph - kh + 1, width + 2 * pw - kw + 1


@dataclass(frozen=True)
class _Network:
    """Blocks and a last layer."""

    blocks: list[_Block]
    head: nn.Linear

    @property
    def weights(self) -> list[Tensor]:
        """The weights of two or more dimensions, in order."""
        return [*(block.convolution.weight for block in self.blocks), self.head.weight]


def _read(model: nn.Module, shape: torch.Size) -> _Network:
    """A network as blocks and a last layer.

    Raises:
        UnsupportedModel: It is not made of such blocks, or a window does not fit its plane.
    """
    match layers_in_order(model):
        case [*layers, nn.Flatten(), nn.Linear() as head] if layers and len(shape) == 4:
            pass
        case _:
            raise UnsupportedModel("it does not end in a flattening and a linear layer")
    blocks = []
    height, width = shape[2:]
    for start in range(0, len(layers), 4):
        match layers[start : start + 4]:
            case [
                nn.Conv2d() as convolution,
                (nn.GroupNorm() | nn.InstanceNorm2d()) as norm,
                nn.ReLU(),
                nn.AvgPool2d() as pool,
            ]:
                side = pool.kernel_size
                block = _Block(convolution, norm, side if isinstance(side, int) else side[0])
            case _:
                raise UnsupportedModel("its layers are no blocks of convolution, norm, ReLU, pool")
        if convolution.stride != (1, 1) or convolution.dilation != (1, 1):
            raise UnsupportedModel("a convolution has a stride or a dilation")
        groups = norm.num_groups if isinstance(norm, nn.GroupNorm) else norm.num_features
        if groups != convolution.out_channels:
            raise UnsupportedModel("a norm mixes channels")
        height, width = block.sides(height, width)
        if height % block.side or width % block.side or not height or not width:
            raise UnsupportedModel("a plane is no multiple of the pool's window")
        height, width = height // block.side, width // block.side
        blocks.append(block)
    weights: list[Tensor] = [p for layer in (*layers, head) for p in layer.parameters()]
    check_weights(list(model.parameters()), weights)
    return _Network(blocks, head)


@torch.no_grad()
def _by_hand(
    net: _Network, images: Tensor, labels: Tensor, distance: Distance, compute: torch.dtype
) -> Tensor:
    height, width = net.blocks[0].sides(*images.shape[2:])
    count = max(1, CHUNK_FLOATS // (net.blocks[0].convolution.out_channels * height * width))
    chunks = zip(images.split(count), labels.split(count), strict=True)
    passes = [_Pass(net, x, y, compute) for x, y in chunks]
    per_pass = zip(*(one.gradients(len(images)) for one in passes), strict=True)
    gradients = [add(parts).requires_grad_() for parts in per_pass]
    with torch.enable_grad():
        along = torch.autograd.grad(distance(gradients), gradients)
    return torch.cat([one.derivative(along) for one in passes])


class _Pass:
    """The passes over some of the images."""

    def __init__(self, net: _Network, images: Tensor, labels: Tensor, compute: torch.dtype) -> None:
        first, *rest = net.blocks
        self.first, self.rest = _FirstBlock(first, compute), [_InnerBlock(b, compute) for b in rest]
        self.images, self.labels = images, labels
        head = net.head
        self.matrix = head.weight.detach()
        self.bias = None if head.bias is None else head.bias.detach()

    def gradients(self, records: int) -> list[Tensor]:
        """The gradients of the network's weights, of the mean loss over this many images: a forward
        and a backward pass."""
        self.records = records
        x = self.first.forward(self.images)
        for block in self.rest:
            x = block.forward(x)
        self.shape = x.shape  # [n, h, w, c]
        self.flat = _flat(x)
        self.softmax = F.linear(self.flat, self.matrix, self.bias).softmax(1)
        self.at_logits = self.softmax.clone()
        self.at_logits[torch.arange(len(self.labels)), self.labels] -= 1
        self.at_logits /= self.records
        g = self._planes(self.at_logits @ self.matrix)
        totals = [self.at_logits.t() @ self.flat]
        for block in reversed(self.rest):
            g, total = block.backward(g)
            totals.append(total)
        totals.append(self.first.backward(g))
        return totals[::-1]

    def derivative(self, along: Sequence[Tensor]) -> Tensor:
        """The derivative of the gradient at the images when the weights move along these."""
        x = self.first.forward_along(along[0])
        for block, v in zip(self.rest, along[1:-1], strict=True):
            x = block.forward_along(x, v)
        moved = F.linear(_flat(x), self.matrix) + F.linear(self.flat, along[-1])
        moved -= (self.softmax * moved).sum(1, keepdim=True)
        at_logits = self.softmax * moved / self.records
        g = self._planes(at_logits @ self.matrix + self.at_logits @ along[-1])
        for block in reversed(self.rest):
            g = block.backward_along(g)
        return self.first.backward_along(g)

    def _planes(self, flat: Tensor) -> Tensor:
        n, h, w, c = self.shape
        return flat.view(n, c, h, w).permute(0, 2, 3, 1).contiguous()


def _flat(x: Tensor) -> Tensor:
    """Channels last to rows in the order of `nn.Flatten`."""
    return x.permute(0, 3, 1, 2).flatten(1)


class _NormAndPool:
    """Normalisation per image and channel, ReLU and mean pool, on activations [n, positions, c].

    With z the convolution, m and rstd its mean and inverse deviation, n = (z - m) rstd the
    normalised values and g the gradient at n, instance norm gives

        at z:  rstd (g - mean(g) - n mean(n g)).

    A dot stands for the derivative along the direction:

        n' = rstd (z' - mean(z') - n s),  rstd' = -rstd^2 s,  with s = mean(n z').
    """

    def __init__(self, block: _Block, compute: torch.dtype) -> None:
        norm = block.norm
        self.eps, self.side, self.compute = norm.eps, block.side, compute
        kernel = block.convolution.weight.detach()
        self.scale = kernel.new_ones(len(kernel)) if norm.weight is None else norm.weight.detach()
        self.shift = kernel.new_zeros(len(kernel)) if norm.bias is None else norm.bias.detach()
        self.kernel, self.padding = kernel, block.padding
        self.block = block


class _InnerBlock(_NormAndPool):
    """A block whose convolution runs as one."""

    def forward(self, x: Tensor) -> Tensor:
        """The pooled activations of x, both [n, h, w, c]."""
        self.x = x.to(self.compute)
        self.w = _channels_last(self.kernel.to(self.compute))
        z = self._convolve(self.x, self.w).to(x.dtype)
        self.plane = z.shape[1:3]
        z = z.flatten(1, 2)
        z -= z.mean(1, keepdim=True)
        self.rstd = torch.rsqrt((z * z).mean(1, keepdim=True) + self.eps)
        self.n = z.mul_(self.rstd)
        self.relu = torch.addcmul(self.shift, self.n, self.scale).relu_()
        return self._pool(self.relu)

    def backward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients at the input and at the kernel."""
        self.g = self._unpool(g)
        self.mean_g, self.q = self.g.mean(1, keepdim=True), (self.n * self.g).mean(1, keepdim=True)
        at_z = torch.addcmul(-self.rstd * self.mean_g, self.n, -self.rstd * self.q)
        at_z.addcmul_(self.g, self.rstd)
        self.at_z = at_z.to(self.compute).unflatten(1, self.plane)
        back, total, _ = aten.convolution_backward(
            _planes_first(self.at_z), _planes_first(self.x), self.w, None,
            (1, 1), self.padding, (1, 1), False, (0, 0), 1, (True, True, False),
        )  # fmt: skip
        return back.permute(0, 2, 3, 1).to(g.dtype), total.to(g.dtype)

    def forward_along(self, x: Tensor, v: Tensor) -> Tensor:
        """The derivative of `forward` along v at the kernel and x at the input."""
        v = v.to(self.compute)
        both = torch.cat([x.to(self.compute), self.x], 3)
        self.pair = _channels_last(torch.cat([self.w, v], 1))
        z = self._convolve(both, self.pair).to(x.dtype).flatten(1, 2)
        self.moved, self.mean_moved = z, z.mean(1, keepdim=True)
        self.s, self.along_g = (
            (self.n * z).mean(1, keepdim=True),
            (self.g * z).mean(1, keepdim=True),
        )
        gain = self.rstd * self.scale
        y = torch.addcmul(-gain * self.mean_moved, self.n, -gain * self.s).addcmul_(z, gain)
        self.v = v
        return self._pool(aten.threshold_backward(y, self.relu, 0))

    def backward_along(self, g: Tensor) -> Tensor:
        """The derivative of the gradient at the input."""
        g = self._unpool(g)
        rstd, squared = self.rstd, self.rstd.square()
        t = rstd * (self.along_g - self.mean_moved * self.mean_g - self.s * self.q)
        w = (self.n * g).mean(1, keepdim=True)
        constant = squared * (self.s * self.mean_g + self.q * self.mean_moved)
        constant -= rstd * g.mean(1, keepdim=True)
        of_n = 2 * squared * self.s * self.q - rstd * (t + w)
        at_z = torch.addcmul(constant, self.n, of_n)
        at_z.addcmul_(self.moved, -squared * self.q)
        at_z.addcmul_(self.g, -squared * self.s).addcmul_(g, rstd)
        both = torch.cat([at_z.to(self.compute).unflatten(1, self.plane), self.at_z], 3)
        pair = _channels_last(torch.cat([self.w, self.v], 0))
        back, _, _ = aten.convolution_backward(
            _planes_first(both), _planes_first(self.x), pair, None,
            (1, 1), self.padding, (1, 1), False, (0, 0), 1, (True, False, False),
        )  # fmt: skip
        return back.permute(0, 2, 3, 1).to(g.dtype)

    def _convolve(self, x: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(_planes_first(x), kernel, None, 1, self.padding).permute(0, 2, 3, 1)

    def _pool(self, y: Tensor) -> Tensor:
        k, (h, w) = self.side, self.plane
        windows = y.view(len(y), h // k, k, w // k, k, y.shape[2])
        parts = [windows[:, :, i, :, j] for i in range(k) for j in range(k)]
        return add(parts).mul_(1 / k**2)

    def _unpool(self, g: Tensor) -> Tensor:
        """The gradient at the norm, from that at the pooled activations."""
        k, (h, w) = self.side, self.plane
        c = g.shape[3]
        g = (g * (self.scale / k**2)).view(len(g), h // k, 1, w // k, 1, c)
        relu = self.relu.view(len(g), h // k, k, w // k, k, c)
        return aten.threshold_backward(g.expand(relu.shape), relu, 0).view(len(g), h * w, c)


class _FirstBlock(_NormAndPool):
    """The block of the images themselves, whose few channels make few rows of patches.

    With the patches u centred over positions, z = K u has mean zero, so that n = rstd K u and all
    means of products with n and z' follow from the patches' covariance and from the products of the
    patches with g and g'. Positions are in the order (position in the window, window). Its
    products are small and run in the type of the weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The pooled activations [n, h, w, c] of images [n, c, h, w]."""
        self.size = x.shape
        self.patches = self._patches(x)
        self.u, self.count = self.patches[:, :-1], self.patches.shape[2]
        self.covariance = torch.bmm(self.u, self.u.transpose(1, 2)) / self.count
        self.flat = self.kernel.flatten(1)
        variance = (self.flat @ self.covariance * self.flat).sum(2).clamp_(min=0)
        self.rstd = torch.rsqrt(variance + self.eps)  # [n, c]
        gain = (self.scale * self.rstd).unsqueeze(2)
        matrix = torch.cat([gain * self.flat, self.shift.expand_as(self.rstd).unsqueeze(2)], 2)
        self.relu = torch.bmm(self.patches.transpose(1, 2), matrix.transpose(1, 2)).relu_()
        return self._pool(self.relu)

    def backward(self, g: Tensor) -> Tensor:
        """The gradient at the kernel; that at the images is not needed."""
        self.g = self._unpool(g)
        self.product = torch.bmm(self.u, self.g).transpose(1, 2)  # [n, c, rows]
        self.q = self.rstd * (self.product * self.flat).sum(2) / self.count
        parts = self.product * self.rstd.unsqueeze(2)
        parts -= (self.count * self.rstd.square() * self.q).unsqueeze(2) * (
            self.flat @ self.covariance
        )
        return parts.sum(0).view_as(self.kernel)

    def forward_along(self, v: Tensor) -> Tensor:
        """The derivative of `forward` along v at the kernel."""
        self.v = v.flatten(1)
        self.s = self.rstd * (self.v @ self.covariance * self.flat).sum(2)
        rstd = self.rstd.unsqueeze(2)
        self.matrix = rstd * self.v - rstd.square() * self.s.unsqueeze(2) * self.flat
        along = self.scale.unsqueeze(1) * self.matrix
        y = torch.bmm(self.u.transpose(1, 2), along.transpose(1, 2))
        return self._pool(aten.threshold_backward(y, self.relu, 0))

    def backward_along(self, g: Tensor) -> Tensor:
        """The derivative of the gradient at the images."""
        g = self._unpool(g)
        product = torch.bmm(self.u, g).transpose(1, 2)
        rstd, s, q = self.rstd, self.s, self.q
        squared = rstd.square()
        t = rstd * ((self.product * self.v).sum(2) / self.count - s * q)
        w = rstd * (product * self.flat).sum(2) / self.count
        of_kernel = (2 * squared * rstd * s * q - squared * (t + w)).unsqueeze(2)
        of_v = -(squared * q).unsqueeze(2)
        square = self.flat.t() @ (of_v * self.v + of_kernel * self.flat)
        square += self.v.t() @ (of_v * self.flat)
        back = torch.bmm((rstd.unsqueeze(2) * self.flat).transpose(1, 2), g.transpose(1, 2))
        back.baddbmm_(self.matrix.transpose(1, 2), self.g.transpose(1, 2))
        back.baddbmm_(square, self.u)
        back -= back.mean(2, keepdim=True)
        return self._fold(back)

    def _unpool(self, g: Tensor) -> Tensor:
        """The gradient at the norm, from that at the pooled activations: [n, positions, c]."""
        g = (g * (self.scale / self.side**2)).flatten(1, 2).unsqueeze(1)
        relu = self.relu.unflatten(1, (self.side**2, -1))
        return aten.threshold_backward(g.expand_as(relu), relu, 0).flatten(1, 2)

    def _pool(self, y: Tensor) -> Tensor:
        height, width = self.block.sides(*self.size[2:])
        pooled = add(y.unflatten(1, (self.side**2, -1)).unbind(1)).mul_(1 / self.side**2)
        return pooled.unflatten(1, (height // self.side, width // self.side))

    def _patches(self, x: Tensor) -> Tensor:
        """The centred patch under each position of the kernel, and a row of ones."""
        c, kh, kw = self.kernel.shape[1:]
        pad_h, pad_w = self.padding
        padded = F.pad(x, (pad_w, pad_w, pad_h, pad_h)).contiguous()
        height, width = self.block.sides(*x.shape[2:])
        s0, s1, s2, s3 = padded.stride()
        k = self.side
        size = (len(x), c, kh, kw, k, k, height // k, width // k)
        under = padded.as_strided(size, (s0, s1, s2, s3, s2, s3, k * s2, k * s3))
        patches = x.new_empty(len(x), c * kh * kw + 1, height * width)
        patches[:, :-1].view(size).copy_(under)
        patches[:, :-1] -= patches[:, :-1].mean(2, keepdim=True)
        patches[:, -1] = 1
        return patches

    def _fold(self, patches: Tensor) -> Tensor:
        """Each patch pixel added at the pixel it was taken from: the transpose of `_patches`."""
        n, c, rows, columns = self.size
        kh, kw = self.kernel.shape[2:]
        pad_h, pad_w = self.padding
        height, width = self.block.sides(rows, columns)
        k = self.side
        parts = patches.view(n, c * kh * kw, k, k, height // k, width // k)
        planes = parts.permute(0, 1, 4, 2, 5, 3).reshape(n, c * kh * kw, height * width)
        size = (rows + 2 * pad_h, columns + 2 * pad_w)
        image = F.fold(planes, size, (kh, kw))
        return image[:, :, pad_h : pad_h + rows, pad_w : pad_w + columns]


def _planes_first(x: Tensor) -> Tensor:
    """[n, h, w, c] seen as [n, c, h, w]."""
    return x.permute(0, 3, 1, 2)


def _channels_last(kernel: Tensor) -> Tensor:
    return kernel.contiguous(memory_format=torch.channels_last)

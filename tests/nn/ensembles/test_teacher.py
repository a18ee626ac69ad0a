"""DataLens's teachers against the published discriminator written layer by layer, one by one."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack, adam_step
from fedsynth.nn.ensembles.teacher_config import TeacherConfig, initial_parameters

SMALL = TeacherConfig((2, 12, 12), classes=4, batch=5, channels=6, hidden=9)


def naive_logits(w: dict[str, Tensor], x: Tensor, labels: Tensor, groups: int) -> Tensor:
    """One teacher, images [n, c, s, s], by library layers; label maps are concatenated."""
    classes = w["hidden_label"].shape[1]

    def with_maps(images: Tensor) -> Tensor:
        maps = F.one_hot(labels, classes).to(images)[:, :, None, None]
        return torch.cat([images, maps.expand(-1, -1, *images.shape[2:])], 1)

    def same(images: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(F.pad(images, (1, 2, 1, 2)), kernel, stride=2)

    def norm(values: Tensor, name: str) -> Tensor:
        scale, shift = w[f"{name}_scale"], w[f"{name}_shift"]
        parts = values.chunk(groups)
        return torch.cat([F.batch_norm(p, None, None, scale, shift, True, eps=1e-5) for p in parts])

    first, second = len(w["conv1_bias"]), len(w["norm2_scale"])
    kernel = torch.cat(
        [
            w["conv1"].view(first, 5, 5, -1).permute(0, 3, 1, 2),
            w["conv1_label"].view(5, 5, classes, first).permute(3, 2, 0, 1),
        ],
        1,
    )
    h = F.leaky_relu(same(with_maps(x), kernel) + w["conv1_bias"][:, None, None], 0.2)
    kernel = torch.cat(
        [
            w["conv2"].view(second, 5, 5, first).permute(0, 3, 1, 2),
            w["conv2_label"].view(classes, second, 5, 5).transpose(0, 1),
        ],
        1,
    )
    h = F.leaky_relu(norm(same(with_maps(h), kernel), "norm2"), 0.2).flatten(1)
    one_hot = F.one_hot(labels, classes).to(x)
    h = F.leaky_relu(norm(h @ w["hidden"].t() + one_hot @ w["hidden_label"].t(), "norm3"), 0.2)
    return (h @ w["out"].t() + one_hot @ w["out_label"].t() + w["out_bias"])[:, 0]


def drawn(seed: int, teachers: int, shape: TeacherConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters away from their start, images and labels of as many teachers, in float64."""
    generator = torch.Generator().manual_seed(seed)
    flat = initial_parameters(shape, teachers, generator, torch.float64)
    flat += 0.2 * torch.randn(flat.shape, generator=generator)
    size = (teachers, 2 * shape.batch, *shape.image)
    images = torch.rand(size, generator=generator, dtype=torch.float64)
    return flat, images, torch.randint(shape.classes, size[:2], generator=generator)


def rows_of(images: Tensor) -> Tensor:
    """Images [T, n, c, s, s] as the stack takes them."""
    flat = images.flatten(0, 1).permute(0, 2, 3, 1).contiguous()
    return windows(flat).unflatten(0, images.shape[:2])


@given(st.integers(0, 1000))
@settings(max_examples=3, deadline=None)
def test_gradients_of_a_stack_are_those_of_its_teachers_one_by_one(seed):
    teachers, m = 3, SMALL.batch
    flat, images, labels = drawn(seed, teachers, SMALL)
    grads = torch.zeros_like(flat)
    stack = TeacherStack(SMALL, SMALL.views(flat, teachers))
    stack.training_gradient(rows_of(images), labels, SMALL.views(grads, teachers))
    found = stack.image_gradient(rows_of(images)[:, :m], labels[:, :m])
    watched = flat.clone().requires_grad_()
    for t in range(teachers):
        w = {name: view[t] for name, view in SMALL.views(watched, teachers).items()}
        logits = naive_logits(w, images[t], labels[t], 2)
        target = (torch.arange(2 * m) < m).double()
        loss = F.binary_cross_entropy_with_logits(logits[:m], target[:m])
        loss = loss + F.binary_cross_entropy_with_logits(logits[m:], target[m:])
        loss.backward()
        x = images[t, :m].clone().requires_grad_()
        fixed = {name: value.detach() for name, value in w.items()}
        wish = F.binary_cross_entropy_with_logits(
            naive_logits(fixed, x, labels[t, :m], 1), torch.ones(m, dtype=torch.float64)
        )
        (gradient,) = torch.autograd.grad(wish, x)
        torch.testing.assert_close(
            found[t].permute(0, 3, 1, 2),
            -gradient,
            rtol=1e-4,
            atol=float(gradient.abs().max()) * 1e-5,
        )
    for name, view in SMALL.views(grads, teachers).items():
        true = SMALL.views(watched.grad, teachers)[name]
        largest = float(true.abs().max())
        torch.testing.assert_close(view, true, rtol=1e-4, atol=largest * 1e-5, msg=name)


def test_bfloat16_points_where_float32_does():
    shape = TeacherConfig((1, 28, 28), classes=10, batch=15)
    flat, images, labels = drawn(0, 2, shape)
    flat = initial_parameters(shape, 2, torch.Generator().manual_seed(1), torch.float32)
    directions = []
    for dtype in (torch.float32, torch.bfloat16):
        views = shape.views(flat.to(dtype), 2)
        stack = TeacherStack(shape, views)
        rows = rows_of(images.to(dtype))
        grads = torch.zeros(2 * shape.parameters, dtype=dtype)
        stack.training_gradient(rows, labels, shape.views(grads, 2))
        directions.append(grads.float())
    assert F.cosine_similarity(*directions, dim=0) > 0.97


def test_a_teacher_does_not_notice_its_neighbours_in_the_stack():
    flat, images, labels = drawn(0, 3, SMALL)
    flat, images = flat.bfloat16(), images.bfloat16()

    def second(images: Tensor, labels: Tensor) -> Tensor:
        grads = torch.zeros_like(flat)
        stack = TeacherStack(SMALL, SMALL.views(flat, 3))
        stack.training_gradient(rows_of(images), labels, SMALL.views(grads, 3))
        found = [view[1].flatten() for view in SMALL.views(grads, 3).values()]
        return torch.cat([*found, stack.image_gradient(rows_of(images), labels)[1].flatten()])

    others = images.clone()
    others[0], others[2] = 1 - others[0], float("nan")
    named = labels.clone()
    named[0] = (named[0] + 1) % SMALL.classes
    assert torch.equal(second(images, labels), second(others, named))


def test_a_step_is_adams():
    shape = TeacherConfig((1, 8, 8), classes=2, batch=3, channels=2, hidden=3)
    generator = torch.Generator().manual_seed(0)
    flat = initial_parameters(shape, 2, generator, torch.float32)
    weights = flat.clone().requires_grad_()
    plain = torch.optim.Adam([weights], lr=1e-3, betas=(0.5, 0.999))
    first, second = torch.zeros_like(flat), torch.zeros_like(flat)
    for step in range(4):
        gradient = torch.randn(flat.shape, generator=generator)
        weights.grad = gradient.clone()
        plain.step()
        adam_step(flat, gradient, first, second, step)
    torch.testing.assert_close(flat, weights.detach(), rtol=1e-5, atol=1e-7)

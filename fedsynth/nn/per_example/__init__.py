"""Gradients of each record, and of a whole batch, by hand-written layers.

Per-example clipping needs the norm of every record's gradient and the sum of the clipped gradients,
not the gradients themselves. The general tools materialise them: for a ConvNet of three blocks, 256
records and one thread, the same clipped gradient took (milliseconds by width, and the error against
a float64 loop over records; rows were measured on different days, so trust the ratios):

| | width 128 | width 32 | error |
|---|---|---|---|
| Opacus hooks, default allocator | 1812 | 254 | 1e-6 |
| Opacus hooks, tuned allocator | 918 | 129 | 1e-6 |
| Opacus ghost clipping, tuned allocator | 1216 | 174 | 2e-6 |
| vmap(grad) in chunks of 32, tuned allocator | 660 | 116 | 1e-7 |
| automatic differentiation without privacy | 503 | 79 | |
| these layers | 467 | | 1.5e-7 |
| these layers, bfloat16 products | 295 | | 2.6e-3 |
| these layers without privacy | 362 | 42 | |

Most of the time of automatic differentiation on a CPU goes into norms, pools and copies. Hence:
one forward and one backward pass of the activations, per-example convolution gradients as one
grouped convolution, linear gradients as outer products that are never formed, and the first block
(convolution, instance norm, ReLU, pool) as one small matrix per record.
`benchmarks/clipped_gradient.py` measures all of this again.

`sequential` reads a network as a sequence of such layers and refuses what it cannot represent
(`UnsupportedModel`); the callers then fall back to automatic differentiation. Nothing here clips or
adds noise: that is `privacy.clipping`.
"""

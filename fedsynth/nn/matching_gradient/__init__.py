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

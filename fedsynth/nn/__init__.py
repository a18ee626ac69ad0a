"""Networks, their gradients by hand-written layers, and fixed transforms of images."""

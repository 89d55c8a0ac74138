"""
A disc flows to an S
====================

Points follow the gradient of a mini-batch loss, with batches of only four. The loss of all the mass draws them towards
the middle of the S; that of eight tenths of it ends nearer.
"""

import matplotlib.pyplot as plt

import spadeful as sp
from spadeful.shapes import disc, s_shape
from spadeful.simulations.flows import draw_frame, view_of

x, y = disc(seed=0), s_shape(seed=1)

figure, panels = plt.subplots(2, 4, figsize=(9, 4.4), layout="constrained")
for row, problem in zip(panels, [sp.Balanced(), sp.Partial(mass=0.8)], strict=True):
    flow = sp.gradient_flow(x, y, problem, steps=3000, every=1000)
    for axes, step, points, distance in zip(row, flow.steps, flow.points, flow.distances, strict=True):
        draw_frame(axes, points, x, y, view_of(x, y, [x]))
        axes.set_title(f"step {step}, W2 = {distance:.3f}", fontsize=9)
    row[0].set_ylabel(f"{problem}", fontsize=8)
plt.show()

"""
The bias of mini-batches, taken away
====================================

With larger batches a flow ends nearer. The mini-batch energy of Salimans et al. subtracts what batches of the same
cloud cost each other, and ends nearer still.
"""

import matplotlib.pyplot as plt

import spadeful as sp
from spadeful.shapes import disc, s_shape

x, y = disc(500, seed=0), s_shape(500, seed=1)
sizes = [4, 16, 64]

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for m, colour in zip(sizes, ["#0072b2", "#009e73", "#d55e00"], strict=True):
    for debiased, style in [(False, "-"), (True, "--")]:
        # Larger batches make fewer steps that are as much longer: as many points are moved, as far.
        steps = {"steps": 12800 // m, "lr": 0.0002 * m, "every": 640 // m}
        flow = sp.gradient_flow(x, y, sp.Balanced(), batch_size=m, n_batches=4, debiased=debiased, **steps)
        label = f"batches of {m}{', debiased' if debiased else ''}"
        axes.plot(4 * m * flow.steps / len(x), flow.distances, style, color=colour, label=label)
axes.set(yscale="log", xlabel="times that a point was drawn, on average", ylabel="W2 to the S")
axes.legend(fontsize=8)
plt.show()

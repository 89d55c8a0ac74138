"""
How large should a batch be?
============================

The mean over batches is above the value between the whole clouds, and falls to it as batches grow; more batches only
make it surer.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 600, 2))
y[:, 0] += 1
cost = ((x[:, None] - y) ** 2).sum(-1)
sizes = [4, 8, 16, 32, 64, 128, 256]

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for problem, colour in [(sp.Balanced(), "#0072b2"), (sp.Partial(mass=0.75), "#d55e00")]:
    results = [sp.minibatch(x, y, problem, m, 6000 // m) for m in sizes]
    values, errors = ([getattr(r, name) for r in results] for name in ("value", "standard_error"))
    axes.errorbar(sizes, values, errors, color=colour, marker="o", ms=4, label=f"{problem}")
    axes.axhline(sp.solve(cost, problem).value, color=colour, ls=":")
axes.set(xscale="log", xlabel="points in a batch", ylabel="value (dotted: of the whole clouds)")
axes.legend()
plt.show()

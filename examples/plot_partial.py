"""
Leave what does not belong
==========================

Transport of all the mass has to move outliers too, and gives points to them. Partial transport of the cheapest 80 %
leaves them where they are.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 50, 2))
y += [4, 1]
x[:10] = rng.normal([-3, 6], 0.5, (10, 2))  # a fifth of each side has no counterpart
y[:10] = rng.normal([7, -5], 0.5, (10, 2))
cost = ((x[:, None] - y) ** 2).sum(-1)

figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for axes, problem in zip(panels, [sp.Balanced(), sp.Partial(mass=0.8)], strict=True):
    plan = sp.solve(cost, problem)
    rows, cols, _ = plan.triplets
    axes.plot(*np.stack([x[rows], y[cols]]).transpose(2, 0, 1), color="0.6", lw=0.8)
    axes.scatter(*x.T, color="#009e73", label="x", zorder=2)
    axes.scatter(*y.T, color="#0072b2", marker="s", label="y", zorder=2)
    axes.set_title(f"{problem}: value {plan.value:.1f}", fontsize=10)
panels[0].legend()
plt.show()

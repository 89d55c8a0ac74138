"""
A ring, seen from many sides
============================

Points follow the gradient of a sliced loss: transport between projections onto random lines, new ones in every step.
A tenth of the target lies far out. All the mass sends points there; nine tenths leave it alone, and as many points stay
where they began.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
angles = rng.uniform(0, 2 * np.pi, 450)
y = np.stack([np.cos(angles), np.sin(angles)], axis=1) + 0.05 * rng.normal(size=(450, 2))
y = np.concatenate([y, rng.normal([5, 4], 0.2, (50, 2))])
start = rng.normal(size=(500, 2)) * 0.3

figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for axes, problem in zip(panels, [sp.Balanced(), sp.Partial(mass=0.9)], strict=True):
    x = start.copy()
    for step in range(200):
        loss = sp.sliced(x, y, problem, n_projections=20, seed=step)
        x -= 0.5 * len(x) * loss.gradients[0]
    axes.scatter(*y.T, s=8, color="0.7", label="y")
    axes.scatter(*x.T, s=8, color="#0072b2", label="x after 200 steps")
    axes.set_title(f"{problem}", fontsize=10)
panels[0].legend()
plt.show()

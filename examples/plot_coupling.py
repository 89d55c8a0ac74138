"""
Straighter paths for flow matching
==================================

Flow matching trains a velocity on the way from noise to data. Pairs drawn by transport have paths that do not cross,
which is what a velocity can be.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
noise = rng.normal(size=(128, 2))
angle = rng.uniform(0, 2 * np.pi, 128)
data = np.column_stack([np.cos(angle), np.sin(angle)]) * 5

figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
pairs = {
    "at random": (np.arange(128), rng.permutation(128)),
    "by transport": sp.couple(noise, data, seed=0),
    "by partial transport, s = 0.7": sp.couple(noise, data, sp.Partial(mass=0.7), seed=0),
}
for axes, (name, (i, j)) in zip(panels, pairs.items(), strict=True):
    axes.plot(*np.stack([noise[i], data[j]]).transpose(2, 0, 1), color="0.6", lw=0.7)
    axes.scatter(*noise.T, s=9, color="#009e73", zorder=2)
    axes.scatter(*data.T, s=9, color="#0072b2", marker="s", zorder=2)
    axes.set(title=name, xticks=[], yticks=[], aspect="equal")
plt.show()

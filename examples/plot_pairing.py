"""
Which batches are paired
========================

The i-th with the i-th, each with every other, or weighted by transport between the batches themselves (BoMb-OT).
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 400, 2)) + 6 * rng.integers(0, 2, (2, 400, 1))
pairings = ["paired", "all", "bomb"]
values = {p: [sp.minibatch(x, y, sp.Balanced(), 16, 12, pairing=p, seed=s).value for s in range(40)] for p in pairings}

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.boxplot(list(values.values()), tick_labels=pairings, medianprops={"color": "black"})
whole = sp.solve(((x[:, None] - y) ** 2).sum(-1), sp.Balanced()).value
axes.axhline(whole, color="#0072b2", ls="--", label="the whole clouds")
axes.set(ylabel="value, over 40 draws", ylim=(0, None))
axes.legend()
plt.show()

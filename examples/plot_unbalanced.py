"""
How much does tau move?
=======================

Unbalanced transport pays for mass that is left. How much it moves depends on its penalty tau, and on the scale of the
costs: with points ten times as far apart, tau has to be a hundred times as large. The mass of partial transport is
what it is asked to be.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 30, 2))
cost = ((x[:, None] - y) ** 2).sum(-1)
taus = np.logspace(-2, 4, 25)

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for scale, style in [(1, "-"), (10, "--")]:
    for divergence, colour in [("kl", "#0072b2"), ("tv", "#d55e00")]:
        masses = [sp.solve(scale**2 * cost, sp.Unbalanced(tau, divergence=divergence)).mass for tau in taus]
        axes.plot(taus, masses, style, color=colour, label=f"{divergence}, points times {scale}")
axes.set(xscale="log", xlabel="tau", ylabel="mass that is moved")
axes.legend()
plt.show()

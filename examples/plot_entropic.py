"""
A plan, blurred
===============

Entropic regularisation spreads a plan over more pairs. All problems have it, and none gives NaN where `reg` is small.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

x = np.linspace(0, 1, 60)
cost = (x[:, None] - 1.2 * x - 0.1) ** 2

figure, panels = plt.subplots(2, 4, figsize=(9, 5), layout="constrained")
for above, below, reg in zip(*panels, [0, 1e-4, 1e-3, 1e-2], strict=True):
    for axes, problem in [(above, sp.Balanced(reg)), (below, sp.Partial(0.6, reg))]:
        axes.imshow(sp.solve(cost, problem).matrix, cmap="Blues")
        axes.set(xticks=[], yticks=[])
    above.set_title(f"balanced, reg = {reg:g}", fontsize=9)
    below.set_title(f"s = 0.6, reg = {reg:g}", fontsize=9)
plt.show()

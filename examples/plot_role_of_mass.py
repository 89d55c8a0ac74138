"""
The role of s
=============

Plans of 32 pairs of batches, added up: with less mass there are fewer misspecified mappings (in brackets in the
middle), and at last too few right ones (on the right).
"""

import matplotlib.pyplot as plt

import spadeful as sp
from spadeful.simulations.aggregated import aggregate

masses = [0.2, 0.4, 0.6, 0.8, 1.0]
found = aggregate({f"{s:g}": sp.Partial(s) for s in masses})

figure, panels = plt.subplots(1, 6, figsize=(11, 2.4), layout="constrained")
panels[0].imshow(found.full, cmap="Blues")
panels[0].set_title("full OT", fontsize=9)
for axes, (s, plan) in zip(panels[1:], found.plans.items(), strict=True):
    axes.imshow(plan, cmap="Blues")
    axes.set_title(f"s = {s}\n{tuple(found.counts[s])}", fontsize=9)
for axes in panels:
    axes.set(xticks=[], yticks=[])
plt.show()

"""
Misspecified mappings
=====================

Example 1 of the paper. Five points go straight across. Between a batch of three and an unlucky other one, transport of
all the mass finds three mappings, none of them right; transport of a third of it keeps the right one.
"""

import matplotlib.pyplot as plt

from spadeful.figures import draw_batch_plan
from spadeful.simulations.example import example_one

example = example_one()
figure, panels = plt.subplots(1, 3, figsize=(7, 3.5), layout="constrained")
for axes, (mass, plan) in zip(panels, example.plans.items(), strict=True):
    draw_batch_plan(axes, example.points, example.batch, plan)
    axes.set_title(f"s = {mass}")
plt.show()

"""
Every mass in one solve
=======================

`mass_path` gives the optimal plan of every mass at once. The price of one more unit jumps where outliers begin, which
tells how much mass to move.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 500, 2))
x[:75] += [-6, 6]  # 15 % outliers
cost = ((x[:, None] - y) ** 2).sum(-1)

path = sp.mass_path(cost)
print(path)

figure, (above, below) = plt.subplots(2, 1, figsize=(6, 5), sharex=True, layout="constrained")
above.plot(path.masses, path.values, color="#009e73")
above.set_ylabel("value of the optimal plan")
below.step(path.masses[1:], path.prices, color="#d55e00")
below.axvline(0.85, color="0.5", ls="--", label="where the outliers begin")
below.set(xlabel="mass s", ylabel="price of one more unit")
below.legend()
plt.show()

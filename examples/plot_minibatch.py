"""
Clouds of any size
==================

Mini-batches between two clouds of 100,000 points: the plan is sparse, and moves every point that some batch has
matched.
"""

import matplotlib.pyplot as plt
import numpy as np

import spadeful as sp

rng = np.random.default_rng(0)
n = 100_000
x = rng.normal(size=(n, 2))
angle = rng.uniform(0, 2 * np.pi, n)
y = np.column_stack([np.cos(angle), np.sin(angle)]) * 4 + 0.2 * rng.normal(size=(n, 2))

result = sp.minibatch(x, y, sp.Partial(mass=0.9), batch_size=200, n_batches=1500)
print(result)
moved = result.map(y, missing=x)

some = slice(3000)
figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
axes.scatter(*y[some].T, s=3, color="0.8", label="y")
axes.scatter(*x[some].T, s=3, color="#009e73", label="x")
axes.scatter(*moved[some].T, s=3, color="#d55e00", label="x, moved")
axes.set_aspect("equal")
axes.legend(markerscale=4)
plt.show()

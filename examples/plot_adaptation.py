"""
A classifier for a moved world
==============================

The target is the source, turned and shifted, and without labels. `MiniBatchTransport` moves the source onto it, and a
classifier trained on what was moved is right about more of the target.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import spadeful as sp

rng = np.random.default_rng(0)
labels = np.arange(600) % 3
centres = np.array([[0, 0], [4, 0], [0, 6]])
source = centres[labels] + rng.normal(size=(600, 2))
turn = np.array([[0.9, -0.44], [0.44, 0.9]])
target = (centres[labels] + rng.normal(size=(600, 2))) @ turn.T + [3, -2]

transport = sp.MiniBatchTransport(sp.Partial(mass=0.9), batch_size=150)
moved = transport.fit(source, labels, Xt=target).transform(source)

figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for axes, name, points in zip(panels, ["source", "source, moved"], [source, moved], strict=True):
    score = LogisticRegression().fit(points, labels).score(target, labels)
    axes.scatter(*target.T, s=8, color="0.75", label="target, no labels")
    for label, colour, marker in zip(range(3), ["#0072b2", "#d55e00", "#009e73"], "os^", strict=True):
        axes.scatter(*points[labels == label].T, s=8, color=colour, marker=marker, label=f"{name}, class {label}")
    axes.set_title(f"trained on the {name}: {score:.0%} of the target right", fontsize=10)
    axes.legend()
plt.show()

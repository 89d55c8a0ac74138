"""
A temple in the colours of a flower
===================================

Batches of pixels of two photos are matched, and colours move as they do in the mean. To move all the mass forces the
dark ground of the flower upon a light sky, for want of anything darker; with less mass the sky stays light.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_sample_images

import spadeful as sp

source, target = (image[::2, ::2] for image in load_sample_images().images)
masses, pictures = [1.0, 0.9, 0.7], {"source": source}
for s, result in zip(masses, sp.transfer_masses(source, target, masses, smooth=True), strict=True):
    pictures["m-OT" if s == 1 else f"m-POT, s = {s:g}"] = result.image
pictures["target"] = target

figure, panels = plt.subplots(1, 5, figsize=(12, 2), layout="constrained")
for axes, (name, picture) in zip(panels, pictures.items(), strict=True):
    axes.imshow(picture)
    axes.set_title(name, fontsize=9)
    axes.set_axis_off()
plt.show()

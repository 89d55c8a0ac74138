"""Weights of the source's classes, for a target that has only some of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spadeful.adapt.methods.adversarial import discriminator


def check_window(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be at least 1. Got {window!r} instead.")


class Weighing(nn.Module):
    """A discriminator of the domains, and weights of the classes: the target's mean prediction over a window.

    All weigh 1 until the first `window` iterations are over; then the weights are renewed whenever a window ends. A
    method sees only batches, so predictions are added up on the way, where the authors pass over the whole target.
    """

    weights: Tensor
    total: Tensor
    seen: Tensor

    def __init__(self, features: int, classes: int, hidden: int, window: int) -> None:
        super().__init__()
        self.discriminator, self.window = discriminator(features, 1, hidden), window
        # As buffers they are part of a checkpoint, and a run that is resumed goes on with them.
        self.register_buffer("weights", torch.ones(classes))
        self.register_buffer("total", torch.zeros(classes))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """What the discriminator says of each point."""
        guesses: Tensor = self.discriminator(features)
        return guesses[:, 0]

    @torch.no_grad()
    def weigh(self, logits: Tensor, iteration: int) -> Tensor:
        """The weights (classes,) at an iteration; the predictions of its target batch count in the next ones."""
        if iteration % self.window == 0 and bool(self.seen > 0):
            self.weights.copy_(self.total / self.seen)
            self.total.zero_()
            self.seen.zero_()
        self.total += logits.float().softmax(dim=1).sum(dim=0)
        self.seen += len(logits)
        return self.weights

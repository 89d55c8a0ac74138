"""Methods of domain adaptation, each a value that yields the losses of an iteration.

A method is any object with

- `name`, for logs and tables;
- `losses(network, draw, iteration)`, which yields one loss after the other. Each is sent backwards before the
  next is asked for, and their gradients add up: k mini-batches need the memory of one. `draw()` gives the next
  `Batch` of source points, their labels and target points;
- `modules(features, classes)`, the modules of its own that are trained along (`None` for most), whose parameters
  make groups of the optimiser;
- optionally `batches_per_iteration`, how often it draws.
"""

from __future__ import annotations

from spadeful.adapt.methods.base import Batch, Draw, Method
from spadeful.adapt.methods.source_only import SourceOnly
from spadeful.adapt.methods.transport import Transport
from spadeful.adapt.methods.two_stage import TwoStage

__all__ = ["Batch", "Draw", "Method", "SourceOnly", "Transport", "TwoStage"]

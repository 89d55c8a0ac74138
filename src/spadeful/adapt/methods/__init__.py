"""Methods of domain adaptation, each a value that yields the losses of an iteration.

A method is any object with

- `name`, for logs and tables;
- `losses(network, draw, step)`, which yields one loss after the other. Each is sent backwards before the
  next is asked for, and their gradients add up: k mini-batches need the memory of one. `draw()` gives the next
  `Batch` of source points, their labels and target points; `step` tells the iteration, the share of the training
  that is done, and the method's own modules;
- `modules(features, classes)`, the modules of its own that are trained along (`None` for most), whose parameters
  make groups of the optimiser.
"""

from __future__ import annotations

from spadeful.adapt.methods.alda import ALDA
from spadeful.adapt.methods.ba3us import BA3US
from spadeful.adapt.methods.base import Batch, Draw, Method, Step
from spadeful.adapt.methods.cdan import CDAN
from spadeful.adapt.methods.dann import DANN
from spadeful.adapt.methods.etn import ETN
from spadeful.adapt.methods.pada import PADA
from spadeful.adapt.methods.rot import ROT
from spadeful.adapt.methods.source_only import SourceOnly
from spadeful.adapt.methods.transport import Transport
from spadeful.adapt.methods.two_stage import TwoStage

__all__ = [
    "ALDA",
    "BA3US",
    "CDAN",
    "DANN",
    "ETN",
    "PADA",
    "ROT",
    "Batch",
    "Draw",
    "Method",
    "SourceOnly",
    "Step",
    "Transport",
    "TwoStage",
]

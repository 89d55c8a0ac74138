"""Optimal transport, one spadeful at a time: exact, partial and mini-batch.

>>> import numpy as np, spadeful as sp
>>> plan = sp.solve(np.array([[0.0, 4.0], [1.0, 9.0]]), sp.Partial(mass=0.5))
>>> plan.value, plan.mass
(0.0, 0.5)
"""

# Names that need only NumPy and SciPy are imported here, from the modules that define them. Names that need
# torch, scikit-learn or matplotlib go through __getattr__, so that importing the package stays quick and
# works without them. A function that shares its module's name has to be imported here: importing the module
# binds the name to the module, and __getattr__ would never be asked.

from __future__ import annotations

from typing import TYPE_CHECKING

from spadeful.aggregate import MiniBatchPlan
from spadeful.color import ColorTransfer, Transferred, transfer_colors, transfer_masses
from spadeful.coupling import CouplingSampler, couple
from spadeful.entropic import NotConverged
from spadeful.flow import Flow, gradient_flow
from spadeful.masspath import MassPath, mass_path
from spadeful.minibatch import full_minibatch, minibatch, minibatch_masses
from spadeful.plan import Plan
from spadeful.problems import Balanced, Partial, Ramp, Sliced, Unbalanced
from spadeful.sliced import SlicedCost, sliced
from spadeful.solve import solve
from spadeful.transport import count_mappings

if TYPE_CHECKING:
    from spadeful.estimators import MiniBatchTransport
    from spadeful.loss import JointCost, MiniBatchLoss

__all__ = [
    "Balanced",
    "ColorTransfer",
    "CouplingSampler",
    "Flow",
    "JointCost",
    "MassPath",
    "MiniBatchLoss",
    "MiniBatchPlan",
    "MiniBatchTransport",
    "NotConverged",
    "Partial",
    "Plan",
    "Ramp",
    "Sliced",
    "SlicedCost",
    "Transferred",
    "Unbalanced",
    "__version__",
    "count_mappings",
    "couple",
    "full_minibatch",
    "gradient_flow",
    "mass_path",
    "minibatch",
    "minibatch_masses",
    "sliced",
    "solve",
    "transfer_colors",
    "transfer_masses",
]

__version__: str

#: Names that are imported when first asked for: their module, and the extra that installs what it needs.
LAZY = {
    "JointCost": ("spadeful.loss", "torch"),
    "MiniBatchLoss": ("spadeful.loss", "torch"),
    "MiniBatchTransport": ("spadeful.estimators", "sklearn"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("spadeful")
    if name in LAZY:
        from importlib import import_module

        module, extra = LAZY[name]
        try:
            return getattr(import_module(module), name)
        except ImportError as error:
            raise ImportError(f"{name} needs what is not installed: {error}. pip install spadeful[{extra}]") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

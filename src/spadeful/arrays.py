"""NumPy or torch in, the same out: what the core reads, and what users get back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

    Array = NDArray[Any] | torch.Tensor

Floats = NDArray[np.float64]

#: The weights must sum to 1 up to this; they are then made to sum to it exactly.
WEIGHT_TOLERANCE = 1e-6


def is_torch(x: object) -> bool:
    """Whether x is a tensor, asked without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def to_numpy(x: Any) -> NDArray[Any]:
    """The values of an array or tensor (on whatever device), shared where they can be."""
    if not is_torch(x):
        return np.asarray(x)
    x = x.detach().cpu().resolve_conj().resolve_neg()  # parts of complex tensors may be views with a sign
    is_half = x.dtype.itemsize == 2 and x.dtype.is_floating_point  # NumPy knows no bfloat16
    values: NDArray[Any] = (x.float() if is_half else x).numpy()
    return values


def like(values: NDArray[Any], x: Any) -> Any:
    """The values as the kind of array that x is: its library, its device, its precision."""
    if is_torch(x):
        torch = sys.modules["torch"]
        dtype = x.dtype if x.dtype.is_floating_point else torch.float64
        return torch.as_tensor(values, dtype=dtype, device=x.device)
    return values.astype(x.dtype, copy=False) if x.dtype.kind == "f" else values


def own_kind(x: Any, values: NDArray[Any]) -> Any:
    """What results are to be like: x itself, or its values if it is neither NumPy's nor torch's."""
    return x if is_torch(x) or isinstance(x, np.ndarray) else values


def precise(values: NDArray[Any], x: Any) -> Any:
    """As `like`, but NumPy values keep their double precision: there are few of them, and they add up."""
    return like(values, x) if is_torch(x) else values


def like_index(indices: NDArray[np.int64], x: Any) -> Any:
    """Indices in the library and on the device of x."""
    return sys.modules["torch"].as_tensor(indices, device=x.device) if is_torch(x) else indices


def open_array(x: Any, name: str) -> NDArray[Any]:
    """The values of an array, tensor or list, unless NumPy would lose something of it without saying so."""
    if isinstance(x, np.ma.MaskedArray):
        hint = "To forbid the masked pairs, pass cost.filled(np.inf)." if name == "cost" else "Pass a plain array."
        raise TypeError(f"{name} must not be masked. {hint}")
    if hasattr(x, "tocsr"):
        raise TypeError(f"{name} must be dense. Got {type(x).__name__} instead; pass {name}.toarray().")
    return to_numpy(x)


def to_floats(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Real numbers as float32 or float64, copied only if of another type or out of line in memory."""
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers. Got the type {values.dtype} instead.")
    if values.dtype.itemsize > 8 and (np.isfinite(values) & (abs(values) > 1e304)).any():
        raise ValueError(f"{name} must not exceed 1e304 in size. Got {abs(values[np.isfinite(values)]).max()} instead.")
    if values.dtype in (np.float64, np.float32) and values.flags.aligned:
        return values
    return np.array(values, dtype=np.float64)


def read_cost(cost: Any, dimensions: tuple[int, ...]) -> NDArray[Any]:
    """The cost as a float array that the core reads in place where it can; refused if it cannot be one."""
    quick = type(cost) is np.ndarray and cost.dtype == np.float64 and cost.flags.aligned
    values = cost if quick else open_array(cost, "cost")
    if values.ndim not in dimensions:
        shapes = " or ".join({2: "(m, n)", 3: "(k, m, n)"}[d] for d in dimensions)
        raise ValueError(f"cost must have the shape {shapes}. Got the shape {values.shape} instead.")
    if not values.size:
        raise ValueError(f"cost must not be empty. Got the shape {values.shape} instead.")
    return values if quick else to_floats(values, "cost")


def refuse_bad_entries(cost: NDArray[Any]) -> None:
    """Refuse NaN and -inf, in the words that the core uses for them."""
    bad = ~(cost > -np.inf)
    if bad.any():
        where = np.argwhere(bad)[0]
        raise ValueError(
            "cost must hold no NaN and no -inf (inf forbids a pair). "
            f"Got {cost[tuple(where)]} at cost{where.tolist()} instead."
        )


def read_weights(weights: Any, name: str, size: int) -> Floats | None:
    """Weights as non-negative floats that sum to 1; None for uniform ones, given as such or not."""
    if weights is None:
        return None
    values = np.ascontiguousarray(to_floats(open_array(weights, name), name), dtype=np.float64)
    if values.shape != (size,):
        raise ValueError(f"{name} must have the shape ({size},), a weight a point. Got {values.shape} instead.")
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        raise ValueError(f"{name} must hold finite weights of at least 0. Got {values[~good][0]} instead.")
    total = values.sum()
    if abs(total - 1) > WEIGHT_TOLERANCE:
        raise ValueError(f"{name} must sum to 1. Got a sum of {total:.6g} instead; divide {name} by its sum.")
    return None if (values == values[0]).all() else values / total

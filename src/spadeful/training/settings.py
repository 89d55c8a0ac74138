"""Settings of a run: a frozen value with a type for each, checked before anything is done with them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

import numpy as np

#: What a setting of a type may be given as.
KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "bool": (bool,),
}


def check_types(settings: Any) -> None:
    """Of the fields of a dataclass."""
    for spec in dataclasses.fields(settings):
        value = getattr(settings, spec.name)
        kinds = KINDS[str(spec.type)]
        if isinstance(value, bool) != (kinds == (bool,)) or not isinstance(value, kinds):
            raise TypeError(f"{spec.name} must be of the type {spec.type}. Got {value!r} instead.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{spec.name} must be finite. Got {value!r} instead.")
        if isinstance(value, int) and value >= 2**63:
            raise ValueError(f"{spec.name} must be below 2**63. Got {value!r} instead.")


def check_least(settings: Any, least: dict[str, float]) -> None:
    for name, bound in least.items():
        if not getattr(settings, name) >= bound:
            raise ValueError(f"{name} must be at least {bound}. Got {getattr(settings, name)!r} instead.")


def check_names(settings: dict[str, Any], kind: Any, where: str) -> None:
    """That a dataclass has fields of these names, and that those without a default are there."""
    known = {spec.name: spec.default is dataclasses.MISSING for spec in dataclasses.fields(kind)}
    unknown = sorted(set(settings) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, n=1)
        meant = f" The nearest to {unknown[0]} is {near[0]}." if near else ""
        raise ValueError(f"{where} must hold {', '.join(sorted(known))} only. Got {', '.join(unknown)} too.{meant}")
    missing = [name for name, needed in known.items() if needed and name not in settings]
    if missing:
        raise ValueError(f"{where} must say {' and '.join(missing)}.")


def of_method(default: Any, *methods: str) -> Any:
    """A setting that some methods have, and a run by another does not."""
    return dataclasses.field(default=default, metadata={"of": methods})


def check_settings(config: Any, names: Collection[str]) -> None:
    """Refuse settings that were asked for and mean nothing to the method of a config."""
    owners = {spec.name: spec.metadata["of"] for spec in dataclasses.fields(config) if "of" in spec.metadata}
    own = [name for name, methods in owners.items() if config.method in methods]
    for name in names:
        if name in owners and name not in own:
            has = f"which has {', '.join(own)}" if own else "which has none of its own"
            raise ValueError(f"{name} is for {', '.join(owners[name])}. Got it with {config.method}, {has}.")


def to_json(settings: Any) -> str:
    return json.dumps(dataclasses.asdict(settings), indent=1) + "\n"


def by_name(name: str, value: Any) -> dict[str, Any]:
    """A value as JSON can hold it; of a dataclass its name, and its fields by their own.

    >>> from spadeful.problems import Partial
    >>> by_name("problem", Partial(0.8))
    {'problem': 'Partial', 'problem.mass': 0.8, 'problem.reg': 0.0}
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return {name: json.loads(json.dumps(value, default=in_short, skipkeys=True))}
    found = {name: type(value).__name__}
    for spec in dataclasses.fields(value):
        found |= by_name(f"{name}.{spec.name}", getattr(value, spec.name))
    return found


def in_short(value: Any) -> Any:
    """A number of NumPy as one of Python; of all else, such as functions, a name that stays from run to run."""
    return value.item() if isinstance(value, np.generic) else getattr(value, "__qualname__", type(value).__qualname__)

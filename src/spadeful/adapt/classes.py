"""The classes of a target: some of the source's, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spadeful.adapt.domain import Domain


def class_numbers(text: str, classes: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the classes that a list names: numbers from 0, ranges of them, or names.

    >>> class_numbers("0-2,4", "abcdef"), class_numbers("b, f", "abcdef")
    ((0, 1, 2, 4), (1, 5))
    """
    found: list[int] = []
    for part in map(str.strip, text.split(",")):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if numbers:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            if not first <= last < len(classes):
                raise ValueError(
                    f"target_classes must be from 0 to {len(classes) - 1}, the numbers of the source's classes, and "
                    f"ranges must go upwards. Got {part!r} instead."
                )
            found += range(first, last + 1)
        elif part in classes:
            found.append(list(classes).index(part))
        else:
            raise ValueError(
                f"target_classes must be numbers such as 0-4 or 0,3,7, or names of the source's classes: "
                f"{', '.join(classes)}. Got {part!r} among {text!r} instead."
            )
    if len(set(found)) < len(found):
        twice = next(number for number in found if found.count(number) > 1)
        raise ValueError(f"target_classes must name a class once. Got {text!r}, which has {classes[twice]} twice.")
    return tuple(sorted(found))


def of_classes(domain: Domain, numbers: Sequence[int]) -> Domain:
    """The points of some classes."""
    if domain.y is None:
        raise ValueError(
            f"target_classes needs the labels of the target, to choose points by. {domain.name} has none: leave "
            "target_classes out, and all its points are adapted to."
        )
    lacking = [domain.classes[number] for number in numbers if not (domain.y == number).any()]
    if lacking:
        raise ValueError(f"target_classes must be classes that the target has. {domain.name} has no {lacking[0]}.")
    return domain.take(np.flatnonzero(np.isin(domain.y, numbers)))


def numbered_alike(domain: Domain, source: Domain) -> Domain:
    """The domain with its labels numbered as those of the source, class by class of the same name."""
    if domain.y is None:
        return domain
    known = named(source)
    if strangers := [name for name in named(domain) if name not in known]:
        raise ValueError(
            f"The classes of the target must be among those of the source, {', '.join(known)}. "
            f"Got {', '.join(strangers)} of {domain.name} as well."
        )
    if domain.classes == source.classes:
        return domain
    places = {name: at for at, name in enumerate(source.classes)}
    numbers = np.array([places.get(name, -1) for name in domain.classes])  # of the last there is no point
    return replace(domain, y=numbers[domain.y], classes=source.classes)


def named(domain: Domain) -> list[str]:
    """The classes of which a domain has points, or all if it has no labels."""
    return [*domain.classes] if domain.y is None else [domain.classes[number] for number in np.unique(domain.y)]

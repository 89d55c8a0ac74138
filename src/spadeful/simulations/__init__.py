"""Every simulation figure of the paper: a function that returns its data, and one that draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spadeful.figures import ENDINGS, new_figure, save
from spadeful.files import check_free
from spadeful.progress import progress_bar
from spadeful.simulations.aggregated import comparison, draw_aggregated, role_of_mass
from spadeful.simulations.example import (
    apart_examples,
    draw_examples,
    partial_example,
    scaled_partial_example,
    scaled_unbalanced_example,
    unbalanced_example,
)
from spadeful.simulations.flows import draw_flows, paper_flows


class Picture(NamedTuple):
    """What is shown, how its data are made, and how they are drawn."""

    shows: str
    data: Callable[[], Any]
    draw: Callable[[Any], Any]


PICTURES = {
    "example-pot": Picture("Example 1 under partial transport", partial_example, draw_examples),
    "example-uot": Picture("Example 1 under unbalanced transport", unbalanced_example, draw_examples),
    "scaled-pot": Picture("its supports scaled by 10, partial", scaled_partial_example, draw_examples),
    "scaled-uot": Picture("its supports scaled by 10, unbalanced", scaled_unbalanced_example, draw_examples),
    "non-overlapping": Picture("batches without an optimal mapping", apart_examples, lambda both: draw_examples(*both)),
    "aggregated": Picture("aggregated plans of 10 + 10 points", comparison, draw_aggregated),
    "role-of-s": Picture("aggregated plans of m-POT for four masses", role_of_mass, draw_aggregated),
    "gradient-flow": Picture("flows of a disc to an S", paper_flows, draw_flows),
}


def write(
    folder: str | Path, names: Sequence[str] = (), force: bool = False, ending: str = ".png", progress: bool = False
) -> list[Path]:
    """Write pictures by their names, all of them if none is given; returns where they are."""
    if ending not in ENDINGS:
        raise ValueError(f"Pictures (--format) must end in {', '.join(ENDINGS)}. Got {ending!r} instead.")
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        raise ValueError(f"A picture must be one of {', '.join(PICTURES)}. Got {unknown[0]!r} instead.")
    new_figure(1, 1)  # says what is missing before there is work to lose
    chosen = {name: check_free(Path(folder) / f"{name}{ending}", force) for name in dict.fromkeys(names or PICTURES)}
    with progress_bar("pictures", len(chosen), progress) as advance:
        for name, path in chosen.items():
            picture = PICTURES[name]
            save(picture.draw(picture.data()), path, force)
            advance(1)
    return list(chosen.values())

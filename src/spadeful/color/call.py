"""The calls: check what was passed, solve, paint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from spadeful.batches import check_count, sampled
from spadeful.color.cells import Cells
from spadeful.color.painter import Painter, Transferred, Unmatched
from spadeful.color.picture import Picture
from spadeful.color.received import add_up
from spadeful.color.spaces import Space, to_points
from spadeful.engine import Engine
from spadeful.minibatch import describe
from spadeful.pairs import Masses, exact_masses
from spadeful.problems import Partial, Problem, check_masses
from spadeful.threads import at_once

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Matched colours from which the move of another colour is averaged, unless said.
NEIGHBORS = 16

#: Up to so many pixels a batch, problems with whole distances are solved sooner.
WHOLE = 128

#: Pictures of several masses that are painted at once: each takes its own half GiB at 12 megapixels.
AT_ONCE = 2


class Options(TypedDict, total=False):
    """How colours are transferred, see `transfer_colors`."""

    batch_size: int
    n_batches: int
    unmatched: Unmatched
    neighbors: int
    smooth: bool
    palette: int | None
    space: Space
    seed: int
    n_jobs: int | None
    progress: bool


def transfer_colors(source: Any, target: Any, problem: Problem, **options: Unpack[Options]) -> Transferred:
    r"""Give an image the colours of another, by mini-batches of pixels: m-OT, m-UOT or m-POT (Algorithm 4).

    Batches A of the source's pixels and B of the target's are drawn, :math:`\pi` is solved between their colours, and
    :math:`Y|_A` grows by :math:`\pi X_t|_B`. In the end each pixel is divided by the mass that it received.

    Parameters
    ----------
    source, target : array (h, w, 3), (h, w, 4) or (h, w)
        Images of any sizes, uint8, uint16, or floats from 0 to 1, which are rounded to 16 bits. The fourth channel is
        alpha: it is kept, and pixels that cannot be seen are not drawn. Grey images become coloured ones.
    problem : Balanced, Partial or Unbalanced
        What is solved between two batches. Channels run from 0 to 1, the cost is the squared distance.
    batch_size, n_batches : int, int
        m and k, 100 and 10,000 unless said.
    unmatched : "nearest" or "keep"
        A pixel that received no mass moves as its nearest matched colours do, in the mean (the default), or keeps its
        colour.
    neighbors : int
        How many nearest matched colours that mean is over, 16 unless said. Colours whose channels agree in their first
        five bits, or that have one colour of the palette, count as one.
    smooth : bool
        Let every pixel move as the nearest matched colours do, its own among them. Without it (the default, the
        paper's algorithm) each pixel has its own mean, over the batches that it was in: grainy where these are few.
    palette : int, optional
        Reduce each image to so many colours by k-means first; one is drawn as often as its pixels would be. Pixels
        move as their colour of the palette does.
    space : "rgb" or "lab"
        Where colours are compared and averaged: as they are, or in CIELAB over 100, the images taken as sRGB.
    seed, n_jobs, progress : int, int, bool
        As in `minibatch`. The result is the same for any number of jobs.

    Returns
    -------
    Transferred
        With the `image`, of the source's size and type, the `masses`, and the `transfer`.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
    >>> result = sp.transfer_colors(source, target // 2, sp.Partial(0.9), batch_size=50, n_batches=100)
    >>> result.image.shape, result.image.dtype, bool(result.image.mean() < source.mean())
    ((20, 30, 3), dtype('uint8'), True)
    """
    (result,) = transfer(source, target, problem, **options)
    return result


def transfer_masses(
    source: Any, target: Any, masses: Sequence[float], **options: Unpack[Options]
) -> Iterator[Transferred]:
    """The same by m-POT of several masses, one result after the other: the mass path of a pair of batches gives all.

    >>> import numpy as np, spadeful as sp
    >>> source, target = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
    >>> results = sp.transfer_masses(source, target, [0.5, 1.0], batch_size=50, n_batches=100)
    >>> half, whole = [result.unmatched for result in results]
    >>> half > whole
    True
    """
    return transfer(source, target, check_masses(masses, "transfer_masses"), **options)


def transfer(
    source: Any,
    target: Any,
    problem: Problem | Masses,
    *,
    batch_size: int = 100,
    n_batches: int = 10_000,
    unmatched: Unmatched = "nearest",
    neighbors: int = NEIGHBORS,
    smooth: bool = False,
    palette: int | None = None,
    space: Space = "rgb",
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Iterator[Transferred]:
    """Check, solve, and make one picture after the other."""
    for name, value, choices in (("unmatched", unmatched, ("nearest", "keep")), ("space", space, ("rgb", "lab"))):
        if value not in choices:
            raise ValueError(f"{name} must be {choices[0]!r} or {choices[1]!r}. Got {value!r} instead.")
    m, k = check_count(batch_size, "batch_size"), check_count(n_batches, "n_batches")
    neighbors, seed = check_count(neighbors, "neighbors"), check_count(seed, "seed", least=0)
    size = None if palette is None else check_count(palette, "palette")
    first = Partial(problem[0]) if isinstance(problem, tuple) else problem
    settings = describe(first, "sqeuclidean", (m, m), "paired") | {"n_batches": k, "seed": seed, "palette": size}
    pictures = Picture.read(source, "source"), Picture.read(target, "target")
    for picture, name in zip(pictures, ("source", "target"), strict=True):
        if m > len(picture.levels):
            seen = len(picture.levels)
            raise ValueError(f"batch_size must be at most the visible pixels of {name}, {seen}. Got {m} instead.")
    cells = Cells.read(pictures[0].levels, space, size, seed)
    unit = 1
    if size is None and space == "rgb":
        if exact_masses(problem) and m <= WHOLE and all(picture.levels.dtype == np.uint8 for picture in pictures):
            unit = 255  # of whole numbers
            x, y = (picture.levels.astype(np.float32) for picture in pictures)
        else:
            x, y = (to_points(picture.levels, space) for picture in pictures)
    else:  # it pays to look at each colour once
        x, y = cells.points, Cells.read(pictures[1].levels, space, size, seed).points
    batches = sampled(len(x), m, k, False, seed, 0, None, "x"), sampled(len(y), m, k, False, seed, 1, None, "y")
    engine = Engine(x, y, problem, "sqeuclidean", batches, n_jobs, 1e-6, 10_000, None, progress, settings)
    painter = Painter(pictures[0], cells, space, neighbors, unmatched, smooth, size is None and not smooth)
    return at_once((partial(painter.paint, *each) for each in add_up(engine, k, unit)), AT_ONCE)

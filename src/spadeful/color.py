"""Colour transfer: an image in the colours of another (Algorithm 4 of the paper)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats, open_array
from spadeful.batches import Indices, sampled
from spadeful.engine import Engine
from spadeful.files import replacing
from spadeful.minibatch import check_count, describe
from spadeful.pairs import Masses
from spadeful.problems import Partial, Problem, check_mass
from spadeful.progress import progress_bar
from spadeful.threads import all_cores
from spadeful.transport import row_masses

if TYPE_CHECKING:
    from typing_extensions import Unpack

Space = Literal["rgb", "lab"]
Levels = NDArray[Any]  # colours as images hold them (n, 3), uint8 or uint16
Points = NDArray[np.float32]  # colours as they are compared (n, 3)

#: Matched colours from which the move of another colour is averaged, unless said.
NEIGHBORS = 16
#: Colours farther away than this count only for colours that have none nearer.
REACH = 0.1
#: Entries of plans that are added up in one go.
ENTRIES = 1 << 23
#: Colours that are moved in one go.
COLORS = 1 << 16
#: Matched colours whose channels agree in so many bits are put together: the mean of many is without grain.
CELL_BITS = 5
#: Sweeps of k-means, after which a palette hardly changes any more.
SWEEPS = 12
#: From linear sRGB to XYZ (IEC 61966-2-1), each relative to the white that the three channels add up to.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
XYZ /= XYZ.sum(axis=1, keepdims=True)


class Options(TypedDict, total=False):
    """How colours are transferred, see `transfer_colors`."""

    batch_size: int
    n_batches: int
    unmatched: Literal["nearest", "keep"]
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
    wanted = tuple(check_mass(mass, "transfer_masses") for mass in masses)
    if not wanted:
        raise ValueError("masses must hold at least one number in (0, 1]. Got none.")
    return transfer(source, target, wanted, **options)


@dataclass(frozen=True, eq=False)
class ColorTransfer:
    """Where colours go: those that were matched, how each moves, and how much mass that rests on.

    It is a function of the colour alone, so that the frames of a video do not flicker. Any colour moves as its nearest
    matched colours do in the mean, weighted by their mass, less the farther away they are.
    """

    colors: Points  # (c, 3), in the space
    moves: Points  # (c, 3)
    masses: Floats  # (c,)
    space: Space
    neighbors: int
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return f"ColorTransfer({len(self.colors)} colours, space={self.space!r}, neighbors={self.neighbors})"

    def apply(self, image: Any) -> NDArray[Any]:
        """An image (h, w, 3), or 4 with alpha, in its new colours."""
        picture = Picture.read(image, "image")
        levels, where = distinct(picture.levels)
        return picture.filled(self.move(levels)[where])

    def move(self, levels: Levels) -> Levels:
        """Where some colours go; for many it pays to pass each once."""
        moved = np.empty_like(levels)
        for start in range(0, len(levels), COLORS):
            part = slice(start, start + COLORS)
            points = to_points(levels[part], self.space)
            moved[part] = to_levels(points + self._mean_moves(points), self.space, levels.dtype)
        return moved

    @cached_property
    def _tree(self) -> Any:
        return tree_of(self.colors)

    def _mean_moves(self, points: Points) -> Floats:
        nearest = np.arange(1, min(self.neighbors, len(self.colors)) + 1)
        away, which = self._tree.query(points, nearest, workers=all_cores())
        # Weights fall to nothing at the farthest, so that the mean does not jump where another colour takes its place,
        # and nearer than that where it is far: a rare colour is not to move as the many of another hue do.
        reach = np.minimum(away[:, -1:], np.maximum(REACH, 2 * away[:, :1]))
        fall = np.maximum(1 - (away / np.where(reach > 0, reach, 1.0)) ** 2, 1e-6)
        weights = self.masses[which] * fall**2
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("nk,nkd->nd", weights, self.moves[which]))

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write everything to a `.npz` file."""
        with replacing(path, force) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                colors=self.colors,
                moves=self.moves,
                masses=self.masses,
                space=np.array(self.space),
                neighbors=np.array(self.neighbors),
                settings=np.array(json.dumps(self.settings)),
            )

    @staticmethod
    def load(path: str | Path) -> ColorTransfer:
        """Read what `save` wrote. Nothing in the file can run code."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                colors, moves = (np.asarray(file[name], dtype=np.float32) for name in ("colors", "moves"))
                masses = np.asarray(file["masses"], dtype=np.float64)
                space, neighbors = str(file["space"]), int(file["neighbors"])
                settings = json.loads(str(file["settings"]))
        except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} must be a transfer that spadeful saved. It cannot be read: {error}") from None
        whole = len(colors) > 0 and colors.shape == moves.shape == (len(masses), 3) and masses.ndim == 1
        finite = all(np.isfinite(each).all() for each in (colors, moves, masses))
        if not (whole and finite and (masses > 0).all() and neighbors >= 1 and space in ("rgb", "lab")):
            raise ValueError(f"{path} must be a transfer that spadeful saved. Its numbers are damaged.")
        return ColorTransfer(colors, moves, masses, "lab" if space == "lab" else "rgb", neighbors, settings)


@dataclass(frozen=True, eq=False)
class Transferred:
    """The new image, the mass that each of its pixels received, and the transfer for further images.

    Pixels that share their mean, because of a palette or of `smooth`, share the mass too: each has that of all.
    """

    image: NDArray[Any]
    masses: Floats  # (h, w)
    transfer: ColorTransfer

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.image.shape))
        return f"Transferred({shape} {self.image.dtype}, unmatched={self.unmatched:.1%})"

    @property
    def unmatched(self) -> float:
        """The share of the pixels that received no mass."""
        return float((self.masses == 0).mean())


def transfer(
    source: Any,
    target: Any,
    problem: Problem | Masses,
    *,
    batch_size: int = 100,
    n_batches: int = 10_000,
    unmatched: Literal["nearest", "keep"] = "nearest",
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
    cells, other = Cells.read(pictures[0].levels, space, size, seed), pictures[1].levels
    x, y = cells.points, to_points(other, space) if size is None else Cells.read(other, space, size, seed).points
    batches = sampled(len(x), m, k, False, seed, 0, None, "x"), sampled(len(y), m, k, False, seed, 1, None, "y")
    engine = Engine(x, y, problem, "sqeuclidean", batches, n_jobs, 1e-6, 10_000, None, progress, settings)
    return (
        finish(pictures[0], cells, moved, its, space, neighbors, unmatched, smooth, size is None and not smooth)
        for moved, its in add_up(engine, k)
    )


class Moved(NamedTuple):
    """What Algorithm 4 adds up for the pixels that received mass: how much, and how it moves them in sum."""

    pixels: Indices
    masses: Floats
    sums: Floats  # (n, 3)

    @staticmethod
    def read(plan: Any, x: Points, y: Points) -> Moved:
        pixels = np.flatnonzero(np.diff(plan.indptr))
        sent = plan[pixels]
        masses = row_masses(sent)
        return Moved(pixels, masses, sent @ y - masses[:, None] * x[pixels])

    def plus(self, other: Moved) -> Moved:
        pixels, where = np.unique(np.concatenate([self.pixels, other.pixels]), return_inverse=True)
        numbers = [np.concatenate([self.masses, other.masses]), *np.concatenate([self.sums, other.sums]).T]
        masses, *sums = (np.bincount(where, each).astype(np.float64) for each in numbers)
        return Moved(pixels, masses, np.stack(sums, axis=1))


def add_up(engine: Engine, k: int) -> list[tuple[Moved, dict[str, Any]]]:
    """Solve the pairs of batches, as many at a time as there is memory for their plans; with the settings of each."""
    m, numbers = engine.batches[0].batch_size, np.arange(k)
    each = len(engine.problem) if isinstance(engine.problem, tuple) else 1
    step = max(1, ENTRIES // (m * m if engine.dense else m * each))
    total: list[Moved] = []
    with progress_bar("pairs of batches", k, engine.progress and step < k) as advance:
        engine = engine._replace(progress=engine.progress and step >= k)
        for start in range(0, k, step):
            part = numbers[start : start + step]
            results = engine.run_masses(part, part, np.full(len(part), 1 / k), keep_plan=True)
            some = [Moved.read(result.plan, engine.x, engine.y) for result in results]
            total = [old.plus(new) for old, new in zip(total, some, strict=True)] if total else some
            advance(len(part))
    return list(zip(total, (result.settings for result in results), strict=True))


def finish(
    picture: Picture,
    cells: Cells,
    moved: Moved,
    settings: dict[str, Any],
    space: Space,
    neighbors: int,
    unmatched: str,
    smooth: bool,
    alone: bool,
) -> Transferred:
    """The picture, from what its pixels add up to: of each alone, or of all of a colour together."""
    masses, colors, moves = cells.pool(moved)
    has = masses > 0
    if not has.any():
        raise ValueError("The problem must move some mass. It moved none; raise tau, or choose another problem.")
    where_to = ColorTransfer(colors[has], moves[has], masses[has], space, neighbors, settings)
    received = np.zeros(len(cells.where)) if alone else masses[cells.labels][cells.where]
    if alone:
        received[moved.pixels] = moved.masses
    table = cells.levels.copy()
    if not alone:
        matched = has[cells.labels]
        own = to_points(table[matched], space) + moves[cells.labels[matched]]
        table[matched] = where_to.move(table[matched]) if smooth else to_levels(own, space, table.dtype)
    if unmatched == "nearest":
        others = np.zeros(len(table), dtype=np.bool_)
        others[cells.where[received == 0]] = True
        table[others] = where_to.move(cells.levels[others])
    levels = table[cells.where]
    if alone:
        points = cells.colors[cells.where[moved.pixels]] + moved.sums / moved.masses[:, None]
        levels[moved.pixels] = to_levels(points, space, levels.dtype)
    return Transferred(picture.filled(levels), picture.spread(received), where_to)


class Picture(NamedTuple):
    """An image as its visible pixels, and what is needed to put others in their place."""

    levels: Levels  # (n, 3)
    visible: NDArray[np.bool_] | None  # (h, w); None for all
    whole: NDArray[Any]  # (h, w, 3 or 4), uint8 or uint16
    dtype: np.dtype[Any]

    @staticmethod
    def read(image: Any, name: str) -> Picture:
        values = open_array(image, name)
        dtype = values.dtype
        if values.ndim == 2 or values.shape[-1:] == (1,):
            values = np.repeat(values.reshape(*values.shape[:2], 1), 3, axis=2)
        if values.ndim != 3 or values.shape[2] not in (3, 4):
            raise ValueError(f"{name} must have the shape (h, w, 3), (h, w, 4) or (h, w). Got {values.shape} instead.")
        if dtype.kind == "f":
            if not ((values >= 0) & (values <= 1)).all():
                raise ValueError(f"{name} must hold numbers from 0 to 1, or be of the type uint8 or uint16.")
            values = np.rint(values.astype(np.float64) * 65535).astype(np.uint16)
        elif dtype not in (np.uint8, np.uint16):
            raise TypeError(f"{name} must be of the type uint8 or uint16, or hold floats. Got {dtype} instead.")
        visible = values[:, :, 3] > 0 if values.shape[2] == 4 else None
        if not values.size or (visible is not None and not visible.any()):
            raise ValueError(f"{name} must have at least one pixel that can be seen. Got none.")
        levels = values[:, :, :3].reshape(-1, 3) if visible is None else values[visible][:, :3]
        return Picture(levels, visible, values, dtype)

    def filled(self, levels: Levels) -> NDArray[Any]:
        """The image with other levels at its visible pixels."""
        if self.visible is None:
            image = levels.reshape(self.whole.shape)
        else:
            image = self.whole.copy()
            image[self.visible, :3] = levels
        return (image / 65535).astype(self.dtype) if self.dtype.kind == "f" else image

    def spread(self, numbers: Floats) -> Floats:
        """A number for each pixel (h, w), 0 where none can be seen."""
        if self.visible is None:
            return numbers.reshape(self.whole.shape[:2])
        spread = np.zeros(self.visible.shape)
        spread[self.visible] = numbers
        return spread


class Cells(NamedTuple):
    """The distinct colours of an image, which of them each pixel has, and which are put together."""

    levels: Levels  # (u, 3)
    where: NDArray[np.int32]  # (n,)
    colors: Points  # (u, 3): as they are compared, reduced to a palette if there is one
    labels: NDArray[np.int32]  # (u,)

    @staticmethod
    def read(levels: Levels, space: Space, size: int | None, seed: int) -> Cells:
        each, where = distinct(levels)
        colors = to_points(each, space)
        if size is None:
            return Cells(each, where, colors, distinct(each >> (8 * each.itemsize - CELL_BITS))[1])
        palette, labels = find_palette(colors, np.bincount(where).astype(np.float64), size, seed)
        return Cells(each, where, palette[labels], labels)

    @property
    def points(self) -> Points:
        """The colour of each pixel, as it is compared."""
        return self.colors[self.where]

    def pool(self, moved: Moved) -> tuple[Floats, Points, Points]:
        """Of each cell the mass (c,), and the colour (c, 3) and the move (c, 3) of its pixels in the mean."""
        own, count = self.where[moved.pixels], int(self.labels.max()) + 1
        colors = self.colors[own] * moved.masses[:, None]
        numbers = np.column_stack([moved.masses, colors, moved.sums])
        sums: Floats = np.stack([np.bincount(self.labels[own], each, count) for each in numbers.T], axis=1).astype(
            float
        )
        means = (sums[:, 1:] / np.where(sums[:, :1] > 0, sums[:, :1], 1.0)).astype(np.float32)
        return sums[:, 0], means[:, :3], means[:, 3:]


def distinct(levels: Levels) -> tuple[Levels, NDArray[np.int32]]:
    """The distinct colours among some, in order, and which of them each is."""
    bits = 8 * levels.dtype.itemsize
    keys: NDArray[Any] = levels[:, 0].astype(np.uint32 if bits == 8 else np.uint64)
    for channel in (1, 2):
        keys <<= bits
        keys |= levels[:, channel]
    each, where = np.unique(keys, return_inverse=True)
    colors = np.stack([each >> (2 * bits), each >> bits, each], axis=1).astype(levels.dtype)  # the lower bits
    return colors, where.astype(np.int32)


def tree_of(points: NDArray[Any]) -> Any:
    """What finds the nearest of some points; imported where it is used, because that takes longer than all else."""
    from scipy.spatial import cKDTree

    return cKDTree(points)


def find_palette(colors: Points, weights: Floats, size: int, seed: int) -> tuple[Points, NDArray[np.int32]]:
    """Fewer colours by k-means, and which of them each becomes.

    A tree finds the nearest of thousands of centres among three channels far quicker than a general k-means does.
    """
    if size >= len(colors):
        return colors, np.arange(len(colors), dtype=np.int32)
    rng = np.random.default_rng(seed)
    centres = colors[rng.choice(len(colors), size, replace=False, p=weights / weights.sum())].astype(np.float64)
    for _ in range(SWEEPS):
        nearest = tree_of(centres).query(colors, workers=all_cores())[1]
        counts = np.bincount(nearest, weights, size)
        used = counts > 0
        sums = [np.bincount(nearest, weights * channel, size) for channel in colors.T]
        centres[used] = np.stack(sums, axis=1)[used] / counts[used, None]
    nearest = tree_of(centres).query(colors, workers=all_cores())[1]
    return centres.astype(np.float32), nearest.astype(np.int32)


def to_points(levels: Levels, space: Space) -> Points:
    """Colours as they are compared, from those that images hold."""
    rgb = levels / np.iinfo(levels.dtype).max
    return (to_lab(rgb) if space == "lab" else rgb).astype(np.float32)


def to_levels(points: NDArray[Any], space: Space, dtype: np.dtype[Any]) -> Levels:
    """Colours as images of a type hold them; those that none can show are cut to what it can."""
    rgb = from_lab(points) if space == "lab" else points
    return np.rint(np.clip(rgb, 0, 1) * np.iinfo(dtype).max).astype(dtype)


def to_lab(rgb: Floats) -> Floats:
    """CIELAB over 100 of sRGB, relative to its white."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    t = linear @ XYZ.T
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.stack([1.16 * f[:, 1] - 0.16, 5 * (f[:, 0] - f[:, 1]), 2 * (f[:, 1] - f[:, 2])], axis=1)


def from_lab(lab: NDArray[Any]) -> Floats:
    """What `to_lab` came from."""
    y = (lab[:, 0] + 0.16) / 1.16
    f = np.stack([y + lab[:, 1] / 5, y, y - lab[:, 2] / 2], axis=1)
    t = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    linear = np.clip(t @ np.linalg.inv(XYZ).T, 0, 1)
    rgb: Floats = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return rgb

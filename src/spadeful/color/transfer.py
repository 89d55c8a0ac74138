"""Where colours go: what a transfer leaves behind for further images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.color.cells import distinct
from spadeful.color.lattice import Lattice
from spadeful.color.palette import tree_of
from spadeful.color.picture import Picture
from spadeful.color.spaces import Levels, Points, Space, to_levels, to_points
from spadeful.files import opened_npz, reading, replacing
from spadeful.threads import all_cores

#: Colours farther away than this count only for colours that have none nearer.
REACH = 0.1
#: Colours that are moved in one go.
COLORS = 1 << 16


@dataclass(frozen=True, eq=False)
class ColorTransfer:
    """Where colours go: those that were matched, how each moves, and how much mass that rests on.

    It is a function of the colour alone, so that the frames of a video do not flicker. Any colour moves as its nearest
    matched colours do in the mean, weighted by their mass, less the farther away they are. That mean is taken at the
    nodes of a lattice in the space, and interpolated between them.
    """

    colors: Points  # (c, 3), in the space
    moves: Points  # (c, 3)
    masses: Floats  # (c,)
    space: Space
    neighbors: int
    settings: dict[str, Any]
    profile: bytes | None = None  # the ICC profile that colours are in; sRGB without one

    def __repr__(self) -> str:
        return f"ColorTransfer({len(self.colors)} colours, space={self.space!r}, neighbors={self.neighbors})"

    def apply(self, image: Any) -> NDArray[Any]:
        """An image (h, w, 3), or 4 with alpha, in its new colours; what cannot be seen stays as it is."""
        picture = Picture.read(image, "image", blank=True)
        if not len(picture.levels):
            return picture.filled(picture.levels)
        levels, where = distinct(picture.levels)
        return picture.filled(self.move(levels).take(where, axis=0))

    def move(self, levels: Levels) -> Levels:
        """Where some colours go; for many it pays to pass each once."""
        moved = np.empty_like(levels)
        for start in range(0, len(levels), COLORS):
            part = slice(start, start + COLORS)
            points = to_points(levels[part], self.space)
            moved[part] = to_levels(points + self._table(points), self.space, levels.dtype)
        return moved

    def mean_moves(self, points: Points) -> Floats:
        """How some colours of the space move, each as its nearest matched colours do."""
        nearest = np.arange(1, min(self.neighbors, len(self.colors)) + 1)
        away, which = self._tree.query(points, nearest, workers=all_cores())
        # Weights fall to nothing at the farthest, so that the mean does not jump where another colour takes its place,
        # and nearer than that where it is far: a rare colour is not to move as the many of another hue do.
        reach = np.minimum(away[:, -1:], np.maximum(REACH, 2 * away[:, :1]))
        fall = np.maximum(1 - (away / np.where(reach > 0, reach, 1.0)) ** 2, 1e-6)
        weights = self.masses.take(which) * fall**2
        weights /= weights.sum(axis=1, keepdims=True)
        means: Floats = np.matmul(weights[:, None], self.moves.take(which, axis=0))[:, 0]
        return means

    @cached_property
    def _tree(self) -> Any:
        return tree_of(self.colors)

    @cached_property
    def _table(self) -> Lattice:
        return Lattice(self.mean_moves, self.space)

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
                profile=np.frombuffer(self.profile or b"", dtype=np.uint8),
            )

    @staticmethod
    def load(path: str | Path) -> ColorTransfer:
        """Read what `save` wrote. Nothing in the file can run code."""
        with reading(path, "a transfer that spadeful saved"), opened_npz(path) as file:
            colors, moves = (np.asarray(file[name], dtype=np.float32) for name in ("colors", "moves"))
            masses = np.asarray(file["masses"], dtype=np.float64)
            space, neighbors = str(file["space"]), int(file["neighbors"])
            settings = json.loads(str(file["settings"]))
            profile = file["profile"].tobytes() or None
        whole = len(colors) > 0 and colors.shape == moves.shape == (len(masses), 3) and masses.ndim == 1
        finite = all(np.isfinite(each).all() for each in (colors, moves, masses))
        if not (whole and finite and (masses > 0).all() and neighbors >= 1 and space in ("rgb", "lab")):
            raise ValueError(f"{path} must be a transfer that spadeful saved. Its numbers are damaged.")
        return ColorTransfer(colors, moves, masses, "lab" if space == "lab" else "rgb", neighbors, settings, profile)

"""From two image files to a third, and to others that get the same colours: what `spadeful color` does."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.table import Table

from spadeful import figures
from spadeful.color import ColorTransfer, Transferred, transfer_colors, transfer_masses
from spadeful.color.call import AT_ONCE
from spadeful.files import check_apart, check_free
from spadeful.images import MOST_PIXELS, OTHERS, SIDES, Photo, check_format, read_photo, write_photo
from spadeful.planning import warnings_in_a_line
from spadeful.problems import Partial, Problem, Unbalanced
from spadeful.progress import progress_bar, terminal
from spadeful.threads import at_once

#: Masses of a sheet, beside the one asked for; 1 is m-OT.
COMPARED = (1.0, 0.99, 0.9, 0.8)
#: The longer side of a picture in a sheet, in pixels.
SHOWN = 640
#: Batches for which it does not matter that a problem is solved slowly.
FEW = 100


@dataclass(frozen=True)
class Outputs:
    """Where the results go: the image, a sheet that compares masses, the transfer, and a folder for further images."""

    image: Path | None = None
    sheet: Path | None = None
    transfer: Path | None = None
    folder: Path | None = None
    force: bool = False

    def check(self, inputs: Sequence[Path], further: Sequence[Path], masses: Sequence[float]) -> None:
        """Refuse what cannot be written, or would be written over something, before the work is done."""
        if not (self.image or self.sheet or self.transfer or further):
            raise ValueError("Something must be written. Pass --output, --compare, --save or --apply-to.")
        if bool(further) != bool(self.folder):
            raise ValueError("--apply-to and --into go together: the images, and the folder that they go to.")
        for path, endings in ((self.sheet, figures.ENDINGS), (self.transfer, (".npz",))):
            if path is not None and path.suffix.lower() not in endings:
                raise ValueError(f"{path} must end in {' or '.join(endings)}. Got {path.suffix!r} instead.")
        if self.image:
            check_format(self.image)
        places = [path for _, path in self.files(masses)]
        places += [self.folder / path.name for path in further] if self.folder else []
        check_apart(places, [*inputs, *further])
        for path in further:
            check_format(path)  # its result is of the same format
        for path in places:
            check_free(path, self.force)

    def files(self, masses: Sequence[float]) -> list[tuple[str, Path]]:
        """The files that are written but for further images, and what each is."""
        each: list[float | None] = [*masses] or [None]
        named = [("image", self.image), ("transfer", self.transfer)]
        files = [(name, numbered(path, mass)) for name, path in named if path for mass in each]
        return [*files, ("sheet", self.sheet)] if self.sheet else files


def numbered(path: Path, mass: float | None) -> Path:
    """The name of a result, with its mass if there are several."""
    return path if mass is None else path.with_name(f"{path.stem}-{mass:g}{path.suffix}")


def run(
    source: Path,
    target: Path,
    problem: Problem,
    masses: Sequence[float],
    outputs: Outputs,
    *,
    apply_to: Sequence[Path] = (),
    most: int = MOST_PIXELS,
    **options: Any,
) -> None:
    """Read, transfer, write, and print a summary; the options are those of `transfer_colors`."""
    further = images_of(apply_to)
    wanted = masses_of(problem, masses, outputs)
    check_masses(problem, masses, wanted, outputs, further)
    outputs.check([source, target], further, masses)
    figure = figures.new_figure(2.6 * (2 + len(wanted)), 2.4) if outputs.sheet else None
    photo = read_photo(source, most)
    check_profile(photo.profile, source)
    other = read_in(photo.profile, target, most)
    if outputs.image:
        check_format(outputs.image, photo.pixels)
    check_further(further, photo.profile, most)
    warn_if_slow(problem, options["n_batches"])
    start, shares, shown = perf_counter(), [], {"source": small(photo)} if figure else {}
    transfers: list[ColorTransfer] = []

    def finish(mass: float | None, result: Transferred) -> tuple[float | None, float, Any]:
        """Write a result; its mass, the share without a match, and what a sheet shows of it."""
        if mass is None or mass in masses or mass == getattr(problem, "mass", None):
            transfers.append(write(result, photo, outputs, mass if masses else None))
        return mass, result.unmatched, small(replace(photo, pixels=result.image)) if figure else None

    with warnings_in_a_line():
        results = results_of(photo, other, problem, wanted, options)
        # Compressing a picture takes as long as painting it.
        for mass, share, picture in at_once((partial(finish, *each) for each in results), AT_ONCE):
            shares.append((mass, share))
            if figure:
                shown["m-OT" if mass == 1 else f"m-POT, s = {mass:g}"] = picture
    if further:
        apply(transfers[0], further, outputs, most)
    if figure is not None and outputs.sheet:
        figures.draw_recolored(figure, shown | {"target": small(other)})
        figures.save(figure, outputs.sheet, outputs.force)
    pooled = options["smooth"] or options["palette"]
    meant = "by colour" if pooled else "in a batch or not"
    show(
        ("source", size_of(photo)),
        ("target", size_of(other)),
        ("problem", "Partial" if masses else f"{problem}"),
        ("batches", f"{options['n_batches']:,} of {options['batch_size']} pixels"),
        ("in no batch", f"about {undrawn(photo, options['batch_size'], options['n_batches']):.1%} of the pixels"),
        *((f"without a match{of_mass(mass)}", f"{share:.1%} of the pixels, {meant}") for mass, share in shares),
        ("time", f"{perf_counter() - start:.1f} s"),
        *((name, str(path)) for name, path in outputs.files(masses)),
        *([("further images", f"{len(further):,} in {outputs.folder}")] if further else []),
    )


def check_masses(
    problem: Problem, masses: Sequence[float], wanted: Sequence[float], outputs: Outputs, further: Sequence[Path]
) -> None:
    """Refuse several masses where there can be but one."""
    if (masses or outputs.sheet) and (not isinstance(problem, Partial) or problem.reg):
        raise ValueError(
            "Several masses and --compare are for --problem partial without --reg: one path gives them all."
        )
    names = [f"{mass:g}" for mass in wanted]
    if alike := [f"{mass}" for mass, name in zip(wanted, names, strict=True) if names.count(name) > 1]:
        raise ValueError(f"The masses must differ in their first six digits. Got {' and '.join(alike)} instead.")
    if len(masses) > 1 and further:
        raise ValueError("--apply-to is for one mass. Pass --mass in the place of --masses.")


def check_further(further: Sequence[Path], profile: bytes | None, most: int) -> None:
    """Refuse images that cannot be read, converted or written, before any is.

    Each is read whole, as only that finds the truncated: a tenth to a third of what moving its colours takes later.
    """
    with progress_bar("images read", len(further), bool(further)) as advance:
        for path in further:
            check_format(path, read_in(profile, path, most).pixels)
            advance(1)


def check_profile(profile: bytes | None, path: Path) -> None:
    """Refuse a profile that others cannot be converted to, by the name of the file that has it."""
    try:
        Photo(np.zeros((1, 1, 3), dtype=np.uint8), profile).in_profile(None)
    except ValueError as error:
        raise ValueError(f"{path} must be in a profile that can be used. {error}") from None


def read_in(profile: bytes | None, path: Path, most: int) -> Photo:
    """An image in the numbers of a profile."""
    photo = read_photo(path, most)
    try:
        return photo.in_profile(profile)
    except ValueError as error:
        raise ValueError(f"{path} must be in a profile that can be used. {error}") from None


def warn_if_slow(problem: Problem, n_batches: int) -> None:
    """Say so before the work if it will be long, and need not be."""
    if n_batches > FEW and isinstance(problem, Unbalanced) and problem.divergence == "kl" and not problem.reg:
        warnings.warn(
            f"{n_batches:,} unbalanced problems are solved exactly, which takes tens of times as long as with "
            "--reg 0.01 or --divergence tv.",
            stacklevel=3,
        )


def masses_of(problem: Problem, masses: Sequence[float], outputs: Outputs) -> list[float]:
    """The masses to solve for, in one go: those asked for, or those of a sheet; none for one problem alone."""
    if isinstance(problem, Partial) and outputs.sheet and not masses:
        return sorted({*COMPARED, problem.mass}, reverse=True)
    return [*masses]


def results_of(
    photo: Photo, other: Photo, problem: Problem, wanted: Sequence[float], options: dict[str, Any]
) -> Iterable[tuple[float | None, Transferred]]:
    """The result of each mass, or without a mass that of the problem."""
    images = photo.pixels, other.pixels
    if wanted:
        return zip(wanted, transfer_masses(*images, wanted, progress=True, **options), strict=True)
    return [(None, transfer_colors(*images, problem, progress=True, **options))]


def write(result: Transferred, photo: Photo, outputs: Outputs, mass: float | None) -> ColorTransfer:
    """One of the results, to files that bear its mass if there are several; its transfer."""
    if outputs.image:
        write_photo(Photo(result.image, photo.profile), numbered(outputs.image, mass), outputs.force)
    transfer = replace(result.transfer, profile=photo.profile)
    if outputs.transfer:
        transfer.save(numbered(outputs.transfer, mass), outputs.force)
    return transfer


def apply(transfer: ColorTransfer, further: Sequence[Path], outputs: Outputs, most: int) -> None:
    """Give further images the same colours."""
    with progress_bar("images", len(further), bool(further)) as advance:
        for path in further:
            photo = read_in(transfer.profile, path, most)
            if outputs.folder:
                write_photo(
                    Photo(transfer.apply(photo.pixels), photo.profile), outputs.folder / path.name, outputs.force
                )
            advance(1)


def run_saved(saved: Path, outputs: Outputs, apply_to: Sequence[Path], most: int = MOST_PIXELS) -> None:
    """Apply a transfer that was saved, and print how many images it was."""
    further = images_of(apply_to)
    if not further or outputs.image or outputs.sheet or outputs.transfer:
        raise ValueError("A transfer that is loaded is for --apply-to with --into. Pass these, and no other output.")
    outputs.check([saved], further, ())
    transfer = ColorTransfer.load(saved)
    check_profile(transfer.profile, saved)
    check_further(further, transfer.profile, most)
    start = perf_counter()
    apply(transfer, further, outputs, most)
    seconds = perf_counter() - start
    show(("images", f"{len(further):,}"), ("time", f"{seconds:.1f} s"), ("folder", str(outputs.folder)))


def images_of(paths: Sequence[Path]) -> list[Path]:
    """The files that some files and folders name; of a folder its images, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {path}.")
        if not path.is_dir():
            files.append(path)
            continue
        seen = [each for each in path.iterdir() if each.name[0] != "."]
        left = [each.suffix.lower() for each in seen if each.suffix.lower() in OTHERS]
        save = f"end in {', '.join(sorted({*left}))}. Save them as one of {', '.join(SIDES)}"
        inside = sorted(each for each in seen if each.suffix.lower() in SIDES)
        if not inside:
            others = f" {len(left):,} {save}." if left else ""
            raise ValueError(f"{path} must hold images ({', '.join(SIDES)}). It holds none.{others}")
        if left:
            warnings.warn(
                f"{len(left):,} images of {path} are left out, as they {save} to have them too.", stacklevel=3
            )
        files += inside
    return files


def small(photo: Photo) -> Any:
    """A picture for a sheet, which is in sRGB."""
    image = photo.pillow
    image.thumbnail((SHOWN, SHOWN))
    return Photo(np.asarray(image), photo.profile).in_profile(None).pixels


def undrawn(photo: Photo, batch_size: int, n_batches: int) -> float:
    """The share of the visible pixels that are in no batch, in the mean over all draws: to count takes too long."""
    pixels = photo.pixels
    visible = np.count_nonzero(pixels[:, :, 3]) if pixels.shape[2] == 4 else pixels.shape[0] * pixels.shape[1]
    return float((1 - batch_size / visible) ** n_batches)


def size_of(photo: Photo) -> str:
    height, width, channels = photo.pixels.shape
    return f"{width} x {height}, {8 * photo.pixels.itemsize} bits{', alpha' if channels == 4 else ''}"


def of_mass(mass: float | None) -> str:
    return "" if mass is None else f", s = {mass:g}"


def show(*rows: tuple[str, str]) -> None:
    """Print a summary."""
    table = Table(show_header=False, title="Colour transfer", title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text)
    terminal().print(table)

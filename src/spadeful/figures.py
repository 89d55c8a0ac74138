"""Every picture. Functions draw on the axes they are given; `save` writes."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spadeful.aggregate import MiniBatchPlan
from spadeful.arrays import Floats
from spadeful.files import replacing
from spadeful.masspath import MassPath
from spadeful.plan import Indices, Plan
from spadeful.training.record import phases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Clouds = tuple[Floats, Floats]
Batch = tuple[Indices, Indices]

#: Formats that pictures are written in.
ENDINGS = (".png", ".pdf", ".svg")

#: From the palette of Okabe and Ito, which the colour-blind can tell apart; RIGHT and WRONG differ in print as well.
SOURCE, TARGET, RIGHT, WRONG = "#009e73", "#0072b2", "#000000", "#d55e00"

#: Mappings of less mass are drawn dashed; what is below NOTHING is not drawn.
SMALL, NOTHING = 0.01, 1e-7
#: Points of each side, and pairs of the plan, that a picture of large clouds shows.
MOST_POINTS, MOST_LINES = 1500, 250


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError("Pictures need matplotlib: pip install 'spadeful[plot]'") from missing
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str | Path, force: bool = False) -> Path:
    """Write a figure, in the format that the path's ending names."""
    with replacing(path, force) as temporary:
        figure.savefig(temporary, dpi=150)
    return Path(path)


def draw_batch_plan(axes: Axes, points: Clouds, batch: Batch, plan: Plan) -> None:
    """Two clouds whose full plan is the identity, and the plan of one pair of batches as arrows with their masses.

    Arrows are black where the full plan has them too, and red where they are misspecified; the bolder the more mass,
    dashed where it is very small. Points outside the batches are hollow.
    """
    for cloud, part, colour, marker in zip(points, batch, (SOURCE, TARGET), "os", strict=True):
        axes.scatter(cloud[:, 0], cloud[:, 1], s=70, marker=marker, facecolors="white", edgecolors=colour, zorder=3)
        axes.scatter(cloud[part, 0], cloud[part, 1], s=70, marker=marker, color=colour, zorder=4)
    rows, cols, masses = plan.triplets
    for i, j, mass in zip(batch[0][rows], batch[1][cols], masses, strict=True):
        if mass > NOTHING:
            draw_arrow(axes, points[0][i], points[1][j], float(mass), len(batch[0]), RIGHT if i == j else WRONG)
    (left, low), (right, high) = points[0].min(axis=0), points[1].max(axis=0)
    margin = (right - left) / 4
    axes.set(xlim=(left - margin, right + margin), ylim=(low - 2 * margin, high + 2 * margin))
    # Numbers, since clouds that differ in their scale alone look the same.
    axes.set(xticks=(left, right), yticks=np.unique(points[0][:, 1]))
    axes.tick_params(length=0, labelsize=7, labelcolor="0.4")
    axes.spines[:].set_visible(False)


def draw_arrow(axes: Axes, start: Floats, end: Floats, mass: float, m: int, colour: str) -> None:
    share = min(1.0, mass * m)  # of what a point of the batch weighs
    axes.annotate(
        "",
        xy=tuple(end),
        xytext=tuple(start),
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "alpha": 0.6 + 0.4 * share,
            "lw": 1 + 1.5 * share,
            "ls": "--" if mass < SMALL else "-",
            "shrinkA": 6,
            "shrinkB": 6,
        },
    )
    if mass >= SMALL:
        place = (start + end) / 2
        look = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
        axes.text(
            place[0], place[1], number(mass), color=colour, fontsize=7, ha="center", va="center", bbox=look, zorder=5
        )


def number(mass: float) -> str:
    """A mass in few characters: a simple fraction if it is one.

    >>> number(1 / 3), number(0.0271), number(2e-5)
    ('1/3', '.027', '2e-5')
    """
    for m in (2, 3, 4, 5):
        if abs(mass - 1 / m) < 1e-9:
            return f"1/{m}"
    return f"{mass:.2g}".removeprefix("0") if mass >= SMALL else f"{mass:.0e}".replace("e-0", "e-")


def draw_mass_path(axes: Axes, path: MassPath) -> None:
    """Value and price of every mass."""
    axes.plot(path.masses, path.values, color=SOURCE, lw=2)
    axes.set(xlabel="mass $s$", xlim=(0, 1))
    axes.set_ylabel("value of the optimal plan", color=SOURCE)
    axes.set_ylim(bottom=min(0.0, float(np.min(path.values))))
    prices = axes.twinx()
    prices.stairs(path.prices, path.masses, baseline=None, color=WRONG, lw=1.2)
    prices.set_ylabel("price of one more unit", color=WRONG)
    prices.set_ylim(bottom=min(0.0, float(np.min(path.prices))))


def draw_minibatch(figure: Figure, points: tuple[NDArray[Any], NDArray[Any]], result: MiniBatchPlan) -> None:
    """The clouds with pairs of the plan, the values of the batches, and how much of each x is matched."""
    axes = figure.subplot_mosaic([["clouds", "values"], ["clouds", "matched"]], width_ratios=[1.7, 1])
    draw_clouds(axes["clouds"], points, result)
    draw_values(axes["values"], result)
    draw_matched(axes["matched"], result.row_mass)


def draw_clouds(axes: Axes, points: tuple[NDArray[Any], NDArray[Any]], result: MiniBatchPlan) -> None:
    """Some points of each side, hollow where the plan has no mass, and some pairs, darker the more they carry."""
    rng = np.random.default_rng(0)
    some = [np.sort(rng.permutation(len(cloud))[:MOST_POINTS]) for cloud in points]
    ends = np.unique(result.sample(MOST_LINES), axis=1) if result.plan.nnz else np.empty((2, 0), dtype=np.int64)
    shown = [np.union1d(which, end) for which, end in zip(some, ends, strict=True)]
    clouds = flatten(*(np.asarray(cloud[which], dtype=np.float64) for cloud, which in zip(points, shown, strict=True)))
    masses = result.row_mass, result.col_mass
    for cloud, which, mass, colour, name in zip(clouds, shown, masses, (SOURCE, TARGET), "xy", strict=True):
        has = mass[which] > 0
        size = float(np.clip(9000 / len(which), 9, 30))
        across, up = cloud[has].T
        axes.scatter(across, up, s=size, color=colour, alpha=0.5, lw=0, zorder=2, label=f"${name}$, matched")
        if not has.all():
            across, up = cloud[~has].T
            label = f"${name}$, no match"
            axes.scatter(across, up, s=size, facecolors="none", edgecolors=colour, lw=0.7, zorder=1, label=label)
    places = [cloud[np.searchsorted(which, end)] for cloud, which, end in zip(clouds, shown, ends, strict=True)]
    if result.plan.nnz:
        draw_pairs(axes, np.stack(places, axis=1), np.asarray(result.plan[tuple(ends)]).ravel() * len(points[0]))
    axes.set_title(f"{len(points[0]):,} points $x$, {len(points[1]):,} points $y$; {result.plan.nnz:,} pairs")
    if points[0].shape[1] == 1:
        axes.set_yticks([0.0, 1.0], ["$x$", "$y$"])
    else:
        whole = points[0].shape[1] == 2
        axes.set(xlabel="first " + ("coordinate" if whole else "principal component"))
        axes.set(ylabel="second " + ("coordinate" if whole else "principal component"))
        axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best", fontsize="small", framealpha=0.8, markerscale=1.2)
    axes.spines[["top", "right"]].set_visible(False)


def draw_pairs(axes: Axes, lines: Floats, masses: Floats) -> None:
    """Lines (k, 2, 2) from x to y, the heaviest on top."""
    from matplotlib.collections import LineCollection

    order = np.argsort(masses, kind="stable")
    pairs = LineCollection(list(lines[order]), cmap="inferno_r", lw=0.9, alpha=0.8, zorder=3)
    pairs.set_array(masses[order])
    low, high = float(masses.min()), float(masses.max())
    if high - low <= 1e-9 * high:
        low, high = 0.0, 2 * high  # pairs of one mass are in the middle of the scale
    pairs.set_clim(low - 0.3 * (high - low), high)  # its palest colours cannot be seen on white
    axes.add_collection(pairs)
    bar = axes.get_figure().colorbar(pairs, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.02)  # type: ignore[union-attr]
    bar.ax.set_xlim(low, high)
    bar.set_label(f"mass of a pair, in units of the weight of a point of $x$ ({len(masses):,} pairs drawn)")


def flatten(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Both clouds in the plane: as they are, by two principal components of both, or as two lines, y above x."""
    if x.shape[1] == 1:
        return np.column_stack([x, np.zeros(len(x))]), np.column_stack([y, np.ones(len(y))])
    centre, directions = plane_of(x, y)
    return (x - centre) @ directions, (y - centre) @ directions


def plane_of(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A centre (d,) and two directions (d, 2): of the plane itself, or the principal components of both clouds."""
    if x.shape[1] == 2:
        return np.zeros(2), np.eye(2)
    both = np.concatenate([x, y])
    usable = both[np.isfinite(both).all(axis=1)]  # what no batch holds has not been checked
    centre = usable.mean(axis=0)
    _, _, directions = np.linalg.svd(usable - centre, full_matrices=False)
    return centre, directions[:2].T


def draw_values(axes: Axes, result: MiniBatchPlan) -> None:
    """What each pair of batches costs, with the mean and its standard error."""
    used = result.weights > 0
    draw_shares(axes, result.values[used], result.weights[used], "#b9c0c8")
    label, error = f"mean {result.value:.4g}", result.standard_error
    if np.isfinite(error):
        axes.axvspan(result.value - error, result.value + error, color=WRONG, alpha=0.25, lw=0)
        label += f" ± {error:.2g}"
    axes.axvline(result.value, color=WRONG, lw=1.5, label=label)
    axes.set(xlabel="value of a pair of batches", ylabel="share of the pairs")
    axes.legend(loc="best", fontsize="small", framealpha=0.8)


def draw_matched(axes: Axes, masses: Floats) -> None:
    """How much mass each point of x sends, in units of its weight."""
    shares = masses * len(masses)
    draw_shares(axes, shares, np.full(len(shares), 1 / len(shares)), SOURCE)
    label = f"mean {shares.mean():.3g}; no match: {(masses == 0).mean():.1%}"
    axes.axvline(float(shares.mean()), color=RIGHT, lw=1.2, ls="--", label=label)
    axes.set(xlabel="mass that a point of $x$ sends, in units of its weight", ylabel="share of $x$")
    axes.legend(loc="best", fontsize="small", framealpha=0.8)


def draw_shares(axes: Axes, values: Floats, weights: Floats, colour: str) -> None:
    """A histogram; a bar a value where there are few different ones, well apart."""
    low, high = float(values.min()), float(values.max())
    scale = max(abs(low), abs(high)) or 1.0
    each, where = np.unique(np.round(values / scale, 6), return_inverse=True)
    apart = float(np.diff(each).min() if len(each) > 1 else 0.3)
    if each[-1] - each[0] <= 40 * apart:
        axes.bar(each * scale, np.bincount(where.ravel(), weights), 0.7 * apart * scale, color=colour)
    else:
        axes.hist(values, bins=int(np.clip(1.5 * np.sqrt(len(values)), 8, 40)), weights=weights, color=colour)
    axes.spines[["top", "right"]].set_visible(False)


def draw_recolored(figure: Figure, pictures: dict[str, Any]) -> None:
    """Pictures side by side with their names above, as in the paper's figure of colour transfer."""
    # Room for the name above a narrow picture; a very wide one is made smaller.
    ratios = [np.clip(picture.shape[1] / picture.shape[0], 0.65, 3.0) for picture in pictures.values()]
    figure.set_size_inches(2.4 * sum(ratios) + 0.1 * len(ratios), 2.9)
    row = figure.subplots(1, len(pictures), squeeze=False, gridspec_kw={"width_ratios": ratios})[0]
    for axes, (name, picture) in zip(row, pictures.items(), strict=True):
        axes.imshow(picture)
        axes.set_title(name)
        axes.set_axis_off()


def draw_curves(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """The accuracies of a run against the iteration; phases follow each other."""
    at: list[int] = []
    starts, before = phases(rows)[1:], 0
    for i, row in enumerate(rows):
        before = at[i - 1] if i in starts else before
        at.append(before + row["iteration"])
    for name, colour in (("source", SOURCE), ("target", TARGET)):
        key = f"{name}_accuracy"
        if any(key in row for row in rows):
            axes.plot(at, [row.get(key, np.nan) for row in rows], color=colour, marker=".", label=name)
    for i in starts:
        axes.axvline((at[i - 1]), color="0.7", linewidth=1)
        axes.text(at[i - 1], axes.get_ylim()[0], f" {rows[i]['phase']}", color="0.4", va="bottom")
    axes.set(xlabel="iteration", ylabel="accuracy, %", title="Learning curves")
    axes.legend(frameon=False)


#: Ten colours of classes that the colour-blind can tell apart, by Petroff (2021), and their markers: the palette of
#: Okabe and Ito has but eight, of which one cannot be seen on white.
CLASSES = (
    *(("#3f90da", "o"), ("#ffa90e", "s"), ("#bd1f01", "^"), ("#94a4a2", "D"), ("#832db6", "v")),
    *(("#a96b59", "d"), ("#e76300", "<"), ("#b9ac70", "h"), ("#717581", ">"), ("#92dadd", "p")),
)


def draw_embedding(axes: Axes, source: tuple[Any, Any], target: tuple[Any, Any]) -> None:
    """The features of two domains in the plane (t-SNE), a colour and a marker a class: source hollow, target full.

    Points without a label, which is -1, are grey dots. From the eleventh class on, markers begin elsewhere.
    """
    flat = np.split(in_the_plane(source[0], target[0]), [len(source[0])])
    for points, (_, labels), full in zip(flat, (source, target), (False, True), strict=True):
        for label in np.unique(labels):
            again, first = divmod(int(label), len(CLASSES))
            colour, marker = CLASSES[first][0], CLASSES[(first + 3 * again) % len(CLASSES)][1]
            if label < 0:
                colour, marker = "0.6", "."
            at = points[labels == label]
            face = colour if full else "none"
            axes.scatter(at[:, 0], at[:, 1], s=18, marker=marker, facecolors=face, edgecolors=colour, linewidths=0.7)
    for name, face in (("source", "none"), ("target", "0.3")):
        axes.scatter([], [], marker="o", facecolors=face, edgecolors="0.3", label=name)
    axes.set(xticks=[], yticks=[], title="Features of the test sets, coloured by class (t-SNE)")
    axes.legend(frameon=False)


def draw_sheet(axes: Axes, x: NDArray[Any], y: Indices, title: str, colour: str, rows: int = 4) -> None:
    """Some images (n, H, W) of every class: a column a class."""
    columns = [np.flatnonzero(y == label)[:rows] for label in np.unique(y)]
    height, width = x.shape[1:]
    sheet = np.zeros((rows * (height + 1), len(columns) * (width + 1)))
    for j, column in enumerate(columns):
        for i, which in enumerate(column):
            sheet[i * (height + 1) :, j * (width + 1) :][:height, :width] = x[which]
    axes.imshow(sheet[:-1, :-1], cmap="gray_r", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, color=colour, fontsize="medium", loc="left")
    axes.spines[:].set_visible(False)


def draw_frequencies(axes: Axes, source: Indices, target: Indices) -> None:
    """How frequent the classes are on either side."""
    classes = np.arange(max(source.max(), target.max()) + 1)
    for place, labels, colour, name in ((-0.2, source, SOURCE, "source"), (0.2, target, TARGET, "target")):
        shares = 100 * np.bincount(labels, minlength=len(classes)) / len(labels)
        axes.bar(classes + place, shares, 0.38, color=colour, label=name)
    axes.set(xticks=classes, xlim=(-0.5, len(classes) - 0.5), ylabel="share, %")
    axes.tick_params(axis="x", length=0)
    axes.spines[["top", "right"]].set_visible(False)


#: Classes whose names fit beside a matrix.
MOST_NAMES = 30


def without_formulas(name: str) -> str:
    """A name as it is: what stands between two dollars would be drawn as a formula."""
    return name.replace("$", r"\$")


def draw_masses(
    figure: Figure, matrix: Floats, classes: Sequence[str], present: NDArray[np.bool_], predicted: bool = False
) -> None:
    """The mass from source classes (rows) to target classes, and what each sends; in red those the target lacks.

    Where it has no labels, its classes are those `predicted`, and the words say so.
    """
    as_predicted = "predicted " if predicted else ""
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1], sharey=True)
    image = left.imshow(matrix, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=left, label="mass")
    left.set(xlabel=f"{as_predicted}class of the target", ylabel="class of the source", title="Mass between classes")
    right.barh(np.arange(len(classes)), matrix.sum(axis=1), color=np.where(present, TARGET, WRONG))
    right.set(xlabel="mass sent", title="Mass that each class sends")
    for label, colour, there in (("in the target", TARGET, present), ("not in the target", WRONG, ~present)):
        if there.any():
            right.barh([0], [0], color=colour, label=f"{as_predicted}{label}")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=2, frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    if len(classes) <= MOST_NAMES:
        names = [without_formulas(name) for name in classes]
        left.set_xticks(np.arange(len(classes)), names, rotation=90)
        left.set_yticks(np.arange(len(classes)), names)
        for tick, has in zip(left.get_yticklabels(), present, strict=True):
            tick.set_color(RIGHT if has else WRONG)


def draw_sent(axes: Axes, sent: Mapping[str, Floats], classes: Sequence[str], present: NDArray[np.bool_]) -> None:
    """The share of the mass that each class of the source sends, by method; on grey those that the target lacks."""
    at = np.arange(len(classes))
    for name, masses in sent.items():
        colour, line, marker = LOOKS.get(name.lower(), (RIGHT, "-", "D"))
        axes.plot(at, 100 * masses / masses.sum(), color=colour, ls=line, marker=marker, ms=5, label=title_of(name))
    for number in at[~present]:
        axes.axvspan(number - 0.5, number + 0.5, color="0.92", lw=0)
    if len(classes) <= MOST_NAMES:
        axes.set_xticks(at, classes, rotation=90)
    axes.set(xlim=(-0.5, len(classes) - 0.5), ylabel="share of the mass sent, %", xlabel="class of the source")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


#: The colour, line and marker of a method, the same in every picture; two stages are dashed. Those for partial targets
#: have the colours of others, which are not compared with them.
LOOKS = {
    "source-only": ("0.45", ":", "s"),
    **{f"{kind}-ot": (WRONG, line, "v") for kind, line in (("m", "-"), ("ts", "--"))},
    **{f"{kind}-uot": ("#cc79a7", line, "^") for kind, line in (("m", "-"), ("ts", "--"))},
    **{f"{kind}-pot": (TARGET, line, "o") for kind, line in (("m", "-"), ("ts", "--"))},
    "dann": (RIGHT, "-.", "*"),
    "cdan-e": ("#e69f00", "-.", "<"),
    "alda": ("#56b4e9", "-.", ">"),
    "rot": (SOURCE, "-.", "p"),
    "pada": ("#e69f00", "-.", "P"),
    "etn": ("#56b4e9", "-.", "X"),
    "ba3us": (SOURCE, "-.", "D"),
}
#: Settings, as the paper writes them.
SYMBOLS = {"n_batches": "k", "batch_size": "m", "mass": "s", "mass_from": "from s", "tau": "τ", "reg": "ε"}


def title_of(name: str) -> str:
    """The name of a run as the paper writes it.

    >>> title_of("n_batches=4,ts-pot"), title_of("cdan-e"), title_of("m-UOT, τ = 1")
    ('TS-POT, k = 4', 'CDAN-E', 'm-UOT, τ = 1')
    """
    parts = [part.strip().partition("=") for part in name.split(",")]
    words = [word for word, equal, _ in parts if not equal]
    short = LOOKS.keys() - {"source-only"}
    methods = [word.upper().replace("M-", "m-") if word.lower() in short else word for word in words]
    settings = [(word.strip(), value.strip()) for word, equal, value in parts if equal]
    return ", ".join([*methods, *(f"{SYMBOLS.get(word, word)} = {value}" for word, value in settings)])


def draw_methods(axes: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """The accuracy of every method against the iteration, listed from the best end to the worst."""
    others = itertools.cycle(((RIGHT, "-", "D"), ("#e69f00", "-", "s"), ("#56b4e9", "-", "P"), (SOURCE, "-", "X")))
    for name, (at, accuracies) in curves.items():
        colour, line, marker = LOOKS.get(name.lower()) or next(others)
        label = f"{title_of(name)}, {accuracies[-1]:.1f} %"
        axes.plot(at, accuracies, color=colour, ls=line, marker=marker, ms=5, label=label)
    axes.set(xlabel="iteration of the adaptation", ylabel="accuracy on the target, %")
    handles, names = axes.get_legend_handles_labels()
    ends = [accuracies[-1] for _, accuracies in curves.values()]
    order = np.argsort(ends, kind="stable")[::-1]
    listed = [handles[i] for i in order], [names[i] for i in order]
    # Beside: no curve is covered. Long lines: dashes can be told from dots.
    axes.legend(*listed, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=3.2)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


def draw_scores(axes: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], score: str) -> None:
    """The score of generated images, less is better, against the iteration."""
    looks = itertools.cycle(zip((RIGHT, TARGET, SOURCE, WRONG, "#cc79a7"), "os^vD", strict=True))
    for (name, (at, scores)), (colour, marker) in zip(curves.items(), looks, strict=False):
        axes.plot(at, scores, color=colour, marker=marker, ms=5, label=title_of(name))
    axes.set(xlabel="iteration", ylabel=textwrap.fill(score, 40))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def draw_digits(axes: Axes, source: tuple[Any, Any], target: tuple[Any, Any], guesses: Indices) -> None:
    """The features of two domains in the plane (t-SNE), each point as its class; the target's wrong guesses in red."""
    flat = in_the_plane(source[0], target[0])
    split = len(source[0])
    right = guesses == target[1]
    everywhere = np.concatenate([source[1], target[1]])
    parts = (
        (np.arange(len(flat)) < split, "0.72", "source"),
        (np.concatenate([np.zeros(split, bool), right]), TARGET, "target, right"),
        (np.concatenate([np.zeros(split, bool), ~right]), WRONG, "target, wrong"),
    )
    for which, colour, name in parts:
        for label in np.unique(everywhere):
            at = flat[which & (everywhere == label)]
            axes.scatter(at[:, 0], at[:, 1], marker=f"${label}$", s=26, color=colour, linewidths=0)
        axes.scatter([], [], marker="o", color=colour, label=name)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")


def in_the_plane(x: Floats, y: Floats) -> Floats:
    """Two clouds, one after the other, in the plane by t-SNE."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    both = np.concatenate([x, y])
    # Points that are all in one place divide by nothing there, and end the interpreter.
    if not np.isfinite(both).all() or np.ptp(both, axis=0).max() <= 1e-6 * abs(both).max():
        return np.zeros((len(both), 2))
    with threadpool_limits(1):  # a thousand points make its threads wait for each other most of the time
        flat: Floats = TSNE(perplexity=min(30.0, (len(both) - 1) / 3), random_state=0, init="pca").fit_transform(both)
    return flat

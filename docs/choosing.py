"""Draw the pictures of choosing.md: python docs/choosing.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

import spadeful as sp
from spadeful.bounds import value_error
from spadeful.figures import RIGHT, SOURCE, TARGET, WRONG, new_figure, save

PICTURES = Path(__file__).parent / "pictures"


def settle(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def squared(x: Any, y: Any) -> Any:
    return ((x[:, None] - y) ** 2).sum(-1)


def outliers(n: int = 400, seed: int = 0) -> tuple[Any, Any]:
    """The clouds of the tutorial: a fifth of y are outliers."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    y += [4, 0]
    y[: n // 5] += [0, 12]
    return x, y


def clusters(n: int = 3000, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Three clusters on each side, of which 0.8 of the mass is common; with the clusters' numbers."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])
    of_x, of_y = rng.choice(3, n, p=[0.5, 0.3, 0.2]), rng.choice(3, n, p=[0.3, 0.3, 0.4])
    return centres[of_x] + rng.normal(size=(n, 2)), centres[of_y] + rng.normal(size=(n, 2)) + [0.5, 0.5], of_x, of_y


def draw_mass() -> Any:
    figure = new_figure(11, 3.6)
    clouds, prices, wrong = figure.subplots(1, 3)
    x, y = outliers()
    path = sp.mass_path(squared(x, y))
    clouds.scatter(*x.T, s=8, color=SOURCE, label="x")
    clouds.scatter(*y.T, s=8, color=TARGET, marker="s", label="y, a fifth outliers")
    rows, cols, _ = path.at(0.78).triplets
    clouds.plot(*np.stack([x[rows], y[cols]], axis=2)[::4].T.transpose(1, 0, 2), color=RIGHT, lw=0.4, alpha=0.5)
    settle(clouds, "some pairs of the plan of mass 0.78", "", "")
    clouds.legend(frameon=False, fontsize=8)
    prices.step(path.masses[1:], path.prices, color=WRONG)
    prices.axvline(0.8, color="0.5", ls="--", lw=1)
    prices.annotate("the bend", (0.8, 45), (0.45, 60), arrowprops={"arrowstyle": "->"}, fontsize=9)
    prices.set_yscale("log")
    prices.set_ylim(3, 400)
    settle(prices, "the price of mass", "mass s", "price of one more unit")
    x, y, of_x, of_y = clusters()
    masses = np.linspace(0.1, 1, 19)
    results = sp.minibatch_masses(x, y, list(masses), batch_size=50, n_batches=400)
    across, reached = [], []
    for result in results:
        plan = result.plan.tocoo()
        across.append(plan.data[of_x[plan.row] != of_y[plan.col]].sum())
        reached.append((result.row_mass > 0).mean())
    wrong.plot(masses, reached, color=SOURCE, label="share of x that has a match")
    wrong.plot(masses, across, color=WRONG, ls="--", label="mass between different clusters")
    wrong.axvline(0.8, color="0.5", ls=":", lw=1)
    settle(wrong, "three clusters, 0.8 in common (m = 50)", "mass s", "")
    wrong.legend(frameon=False, fontsize=8)
    return figure


def draw_tau() -> Any:
    figure = new_figure(9, 3.6)
    cut, moved = figure.subplots(1, 2)
    x, y = outliers()
    cost = squared(x, y)
    path = sp.mass_path(cost)
    tau = 25.0
    mass = sp.solve(cost, sp.Unbalanced(tau, divergence="tv")).mass
    cut.step(path.masses[1:], path.prices, color=WRONG)
    cut.axhline(2 * tau, color=TARGET, ls="--", lw=1, label=rf"$2\tau$ = {2 * tau:g}")
    cut.axvline(mass, color=TARGET, lw=1, label=f"mass that UOT-TV moves: {mass:.2f}")
    settle(cut, "total variation: the path, cut at $2\\tau$", "mass s", "price of one more unit")
    cut.legend(frameon=False, fontsize=8)
    small = cost[::4, ::4]
    taus = np.logspace(-1, 4, 26)
    for divergence, colour, style in (("tv", WRONG, "-"), ("kl", SOURCE, "--")):
        masses = [sp.solve(small, sp.Unbalanced(t, divergence=divergence)).mass for t in taus]
        moved.plot(
            taus, masses, color=colour, ls=style, label={"tv": "total variation", "kl": "Kullback-Leibler"}[divergence]
        )
    moved.set_xscale("log")
    settle(moved, "the mass that a penalty moves", "tau", "mass")
    moved.legend(frameon=False, fontsize=8)
    return figure


def draw_reg() -> Any:
    figure = new_figure(11, 3.4)
    panels = figure.subplots(1, 4)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 100, 2))
    x, y = (points[np.argsort(points[:, 0])] for points in (x, y))
    cost = squared(x, y)
    spread = np.ptp(cost)
    for axes, share in zip(panels[:3], (1e-4, 1e-3, 1e-2), strict=True):
        axes.imshow(sp.solve(cost, sp.Balanced(reg=share * spread)).matrix, cmap="Blues", vmax=0.003)
        axes.set_title(f"reg = {share:g} of the spread", fontsize=10)
        axes.set(xticks=[], yticks=[])
    shares = np.logspace(-4, 0, 17)
    plans = [sp.solve(cost, sp.Balanced(reg=share * spread)) for share in shares]
    exact = sp.solve(cost, sp.Balanced()).value
    panels[3].plot(shares, [plan.value / exact for plan in plans], color=SOURCE, label="value, times the exact one")
    widths = [np.std(len(x) * plan.matrix @ y) / np.std(y) for plan in plans]
    panels[3].plot(shares, widths, color=WRONG, ls="--", label="width of x mapped / width of y")
    panels[3].set(xscale="log", yscale="log")
    settle(panels[3], "what blur does", "reg, as a share of the costs' spread", "")
    panels[3].legend(frameon=False, fontsize=8)
    return figure


def draw_batches() -> Any:
    figure = new_figure(9, 3.6)
    size, count = figure.subplots(1, 2)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 600, 2))
    y[:, 0] += 1
    sizes = [4, 8, 16, 32, 64, 128, 256]
    for problem, colour, marker in ((sp.Balanced(), TARGET, "s"), (sp.Partial(0.75), WRONG, "o")):
        results = [sp.minibatch(x, y, problem, m, 6000 // m) for m in sizes]
        values, errors = ([getattr(r, name) for r in results] for name in ("value", "standard_error"))
        name = "s = 1" if problem == sp.Balanced() else "s = 0.75"
        size.errorbar(sizes, values, errors, color=colour, marker=marker, ms=4, label=f"mini-batches, {name}")
        size.axhline(sp.solve(squared(x, y), problem).value, color=colour, ls=":", label=f"whole clouds, {name}")
    size.set_xscale("log")
    size.set_xticks(sizes, [str(m) for m in sizes])
    size.minorticks_off()
    settle(size, "the value over the batch size m", "m", "value")
    size.legend(frameon=False, fontsize=8)

    # Distances, not their squares, on the unit square: no pair costs more than its diagonal.
    x, y = rng.random((2, 5000, 2))
    mass, ks = 0.75, [3, 10, 30, 100, 300, 1000]
    values = sp.minibatch(x, y, sp.Partial(mass), 32, 120_000, cost="euclidean", keep_plan=False).values
    spread = values.std()
    seen = [np.quantile(abs(values[: len(values) // k * k].reshape(-1, k).mean(1) - values.mean()), 0.95) for k in ks]
    count.plot(ks, seen, color=SOURCE, marker="o", ms=4, label="error that 95 % of runs keep below")
    expected = [norm.ppf(0.975) * spread / k**0.5 for k in ks]
    count.plot(ks, expected, color=RIGHT, ls=":", label="1.96 standard errors")
    bound = [value_error(largest=mass * 2**0.5, n_batches=k, delta=0.05) for k in ks]
    count.plot(ks, bound, color=WRONG, ls="--", label="Theorem 1, $\\delta$ = 0.05")
    count.set(xscale="log", yscale="log")
    settle(count, "the error of the value over k (m = 32, distances)", "pairs of batches k", "")
    count.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    for name, draw in {"mass": draw_mass, "tau": draw_tau, "reg": draw_reg, "batches": draw_batches}.items():
        print(save(draw(), PICTURES / f"choosing-{name}.png", force=True))

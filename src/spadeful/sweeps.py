r"""The one loop of entropic transport: in the log domain, for every problem, batched, on any device.

The plan has the form :math:`P_{ij} = \exp(W_{ij} + \varphi_i + \psi_j + \ell)`, :math:`W = -C/\varepsilon`
(plus the logarithms of the weights where the entropy is taken against their product). With r and c the
logarithms of its row and column sums without :math:`\varphi` and :math:`\psi`, a sweep sets

.. math:: \varphi \leftarrow \mathrm{step}_a(\log a - r), \qquad \psi \leftarrow \mathrm{step}_b(\log b - c),
          \qquad \ell \leftarrow \ell + \log s - \log \textstyle\sum P,

each of which maximises the dual objective over its own unknowns. Problems differ in `step`, a multiple of x cut
off at two bounds: x itself (balanced), :math:`\min(0, x)` (partial: rows and columns may stay below their
weights, and only there is :math:`\ell` not 0), :math:`x\,\tau/(\tau+\varepsilon)` (Kullback-Leibler), a clip at
:math:`\pm\tau/\varepsilon` (total variation).

Two things make it quick and safe. The exponentials are kept as a matrix relative to potentials that are
absorbed into it whenever they have moved far, so that a sweep is two products of matrix and vector, and
nothing overflows or vanishes (Schmitzer, SIAM J. Sci. Comput. 41, 2019). And where sweeps would take long,
damped Newton steps on their fixed point take over, for which only the slope of `step` has to be known; a step
is taken if it raises the dual objective more than a sweep does.

Sweeps of NumPy arrays are made by the compiled core, one problem after the other; those of tensors on a device
here, all problems at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from spadeful import _core

Array = Any  # numpy.ndarray or torch.Tensor, of float64

#: Potentials that have moved this far from those in the kernel are absorbed: exp(60) is far from overflow.
FAR = 60.0
#: Sweeps between two looks at how fast the error falls.
LOOK = 20
#: Newton steps in one go; a few are the rule.
MOST_STEPS = 100
#: Duals that differ by no more than this, for their size, are level.
LEVEL = 1e-9
#: Plans of this mass and more overflow.
OVERFLOW = 1e300
#: Sums below this are of rows or columns that carry nothing.
TINY = 1e-280


@dataclass(frozen=True)
class Side:
    """What is asked of one marginal: potential = clip(share * x, low, high) for x = log(weights) - log(sums)."""

    log_weights: Array  # (1, m)
    share: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    tau: float = 0.0  # of a Kullback-Leibler penalty, in units of the regularisation

    def step(self, xp: Any, x: Array) -> Array:
        return xp.clip(self.share * x, self.low, self.high)

    def slope(self, xp: Any, x: Array) -> Array:
        moved = self.share * x
        inside = (moved > self.low) & (moved < self.high)
        return xp.where(inside, xp.full_like(x, self.share), xp.zeros_like(x))

    def dual(self, xp: Any, potential: Array) -> Array:
        """Its share of the dual objective, in units of the regularisation."""
        gain = -self.tau * xp.expm1(-potential / self.tau) if self.tau else potential
        return (xp.exp(self.log_weights) * gain).sum(axis=1)

    def pull(self, xp: Any, potential: Array) -> Array:
        """How strongly a Kullback-Leibler penalty pulls at all potentials alike."""
        return log_sum_exp(xp, self.log_weights - potential / self.tau, 1)


@dataclass(frozen=True)
class Potentials:
    """log P = W + rows + columns + total, for each of k problems: (k, m), (k, n), (k,)."""

    rows: Array
    columns: Array
    total: Array

    def pick(self, which: Any) -> Potentials:
        return Potentials(self.rows[which], self.columns[which], self.total[which])

    def put(self, which: Any, values: Potentials) -> None:
        """Overwrite some problems' potentials."""
        self.rows[which], self.columns[which], self.total[which] = values.rows, values.columns, values.total

    def __add__(self, step: Potentials) -> Potentials:
        return Potentials(self.rows + step.rows, self.columns + step.columns, self.total + step.total)

    def __mul__(self, by: float) -> Potentials:
        return Potentials(self.rows * by, self.columns * by, self.total * by)


@dataclass(frozen=True)
class Steps:
    """What a problem asks of a sweep."""

    rows: Side
    columns: Side
    mass: float = 0.0  # of the whole plan where it is prescribed apart from the marginals
    loose: bool = False  # whether a constant moved from columns to rows changes nothing, and is to be kept at 0

    def dual(self, xp: Any, at: Potentials, mass: Array) -> Array:
        """The dual objective of potentials whose plan has this mass, in units of the regularisation."""
        return self.rows.dual(xp, at.rows) + self.columns.dual(xp, at.columns) - mass + self.mass * at.total

    def centre(self, at: Potentials) -> Potentials:
        """Where a constant moved from columns to rows changes nothing, keep both of a size, to lose no digits."""
        if not self.loose:
            return at
        by = ((at.columns.mean(axis=1) - at.rows.mean(axis=1)) / 2)[:, None]
        return replace(at, rows=at.rows + by, columns=at.columns - by)

    def translate(self, xp: Any, at: Potentials) -> Potentials:
        """Move the best constant from columns to rows: sweeps alone find it slowly (Sejourne et al., 2022)."""
        rows, columns = self.rows, self.columns
        if not rows.tau:
            return at
        by = rows.pull(xp, at.rows) - columns.pull(xp, at.columns)
        by = (by * (rows.tau * columns.tau / (rows.tau + columns.tau)))[:, None]
        return replace(at, rows=at.rows + by, columns=at.columns - by)


@dataclass(frozen=True)
class Exponents:
    """The logarithms of the plan without its potentials, W above, for k problems (k, m, n)."""

    xp: Any
    cost: Array
    reg: float
    log_a: Array
    log_b: Array
    of_product: bool = False  # whether the entropy is taken against the product of the weights
    threads: int = 1

    @cached_property
    def logs(self) -> Array:
        logs = self.cost / -self.reg
        return logs + self.log_a[:, :, None] + self.log_b[:, None, :] if self.of_product else logs

    def pick(self, which: Any) -> Exponents:
        return replace(self, cost=self.cost[which])

    def plan(self, at: Potentials) -> Array:
        """The plan of some potentials."""
        return self.plan_and_mass(at)[0]

    def plan_and_mass(self, at: Potentials) -> tuple[Array, Array]:
        if self.xp is not np:
            exponent = self.logs + at.rows[:, :, None]
            exponent += at.columns[:, None, :]
            exponent += at.total[:, None, None]
            plan = self.xp.exp(exponent)
            return plan, plan.sum(axis=2).sum(axis=1)
        out = np.empty(self.cost.shape)
        rows, columns = (at.rows + self.log_a, at.columns + self.log_b) if self.of_product else (at.rows, at.columns)
        return out, _core.plans(self.cost, self.reg, rows, columns, at.total, out, self.threads)


def log_sum_exp(xp: Any, x: Array, axis: int) -> Array:
    """log(sum(exp(x))), also where all of x is -inf."""
    top = xp.amax(x, axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return xp.log(xp.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


@dataclass(frozen=True)
class Kernel:
    """The plan of each problem as a matrix, with the potentials that it was made at."""

    exponents: Exponents
    at: Potentials
    matrix: Array

    @staticmethod
    def make(exponents: Exponents, at: Potentials) -> Kernel:
        matrix, mass = exponents.plan_and_mass(at)
        matrix[~(mass < OVERFLOW)] = math.inf  # the core's exponentials end at the largest number, and are wrong there
        return Kernel(exponents, at * 1.0, matrix)

    @property
    def xp(self) -> Any:
        return self.exponents.xp

    @property
    def logs(self) -> Array:
        return self.exponents.logs

    def absorb(self, potentials: Potentials, which: Any) -> None:
        """Make the kernel of some problems anew, at where their potentials are now."""
        there = potentials.pick(which)
        self.matrix[which] = self.exponents.pick(which).plan(there)
        self.at.put(which, there)

    def pick(self, which: Any) -> Kernel:
        return Kernel(self.exponents.pick(which), self.at.pick(which), self.matrix[which])

    def log_row_sums(self, at: Potentials) -> Array:
        """Logarithms of the row sums of the plan without the rows' own potentials."""
        scales = self.xp.exp(at.columns - self.at.columns)[:, :, None]
        sums = self.xp.log((self.matrix @ scales).squeeze(2)) - self.at.rows + (at.total - self.at.total)[:, None]
        if bool(self.xp.isfinite(sums).all()):
            return sums
        # Some row vanished beside the potentials in the kernel.
        return log_sum_exp(self.xp, self.logs + at.columns[:, None, :], 2) + at.total[:, None]

    def log_column_sums(self, at: Potentials) -> Array:
        """Logarithms of the column sums of the plan without the columns' own potentials."""
        scales = self.xp.exp(at.rows - self.at.rows)[:, None, :]
        sums = self.xp.log((scales @ self.matrix).squeeze(1)) - self.at.columns + (at.total - self.at.total)[:, None]
        if bool(self.xp.isfinite(sums).all()):
            return sums
        return log_sum_exp(self.xp, self.logs + at.rows[:, :, None], 1) + at.total[:, None]

    def far(self, now: Potentials) -> Array:
        """Which problems' potentials have moved far from those in the kernel."""
        rows = self.xp.amax(abs(now.rows - self.at.rows), axis=1)
        return (rows > FAR) | (self.xp.amax(abs(now.columns - self.at.columns), axis=1) > FAR)


def sweep(kernel: Kernel, old: Potentials, steps: Steps) -> tuple[Potentials, Array, Array]:
    """Rows, columns, total, each to its optimum in turn.

    Returns the potentials, the share of mass that the old ones misplaced, and the dual objective.
    """
    xp = kernel.xp
    sums = kernel.log_row_sums(old)
    rows = steps.rows.step(xp, steps.rows.log_weights - sums)
    error = abs(xp.exp(rows + sums) - xp.exp(old.rows + sums)).sum(axis=1)
    new = replace(old, rows=rows)
    sums = kernel.log_column_sums(new)
    new = replace(new, columns=steps.columns.step(xp, steps.columns.log_weights - sums))
    carried = xp.exp(new.columns + sums)
    error = xp.maximum(error, abs(carried - xp.exp(old.columns + sums)).sum(axis=1))
    mass = carried.sum(axis=1)
    if steps.mass:
        change = math.log(steps.mass) - xp.log(mass)
        mass = xp.full_like(mass, steps.mass)
        error = error + abs(xp.expm1(change)) * mass
        new = replace(new, total=new.total + change)
    new = steps.translate(xp, new)
    share = xp.where(error == 0, error, error / mass)
    return new, share, steps.dual(xp, new, mass)


def newton(plan: Array, xp: Any, now: Potentials, steps: Steps, damping: float) -> Potentials:
    r"""The damped step to the fixed point of the linearised sweep.

    With the rows' and columns' conditional plans p and q, their sums R and S, and the slopes d and e of the
    steps, it solves :math:`\delta\varphi + d (p\,\delta\psi + \delta\ell) = \rho_\varphi`,
    :math:`\delta\psi + e (q^\top \delta\varphi + \delta\ell) = \rho_\psi` and
    :math:`\delta\ell + (\langle R, \delta\varphi\rangle + \langle S, \delta\psi\rangle)/s = \rho_\ell`, where
    the right-hand sides are what a sweep would change, by eliminating :math:`\delta\varphi`.
    """
    row_sums, column_sums = plan.sum(axis=2), plan.sum(axis=1)
    to_rows, d, p = linearise(xp, steps.rows, row_sums, now.rows, plan, (..., None))
    to_columns, e, q = linearise(xp, steps.columns, column_sums, now.columns, plan, (slice(None), None))
    q = xp.swapaxes(q, 1, 2)
    k, n = e.shape
    eye = xp.eye(n, dtype=plan.dtype, device=plan.device)
    system = (1 + damping) * eye - e[:, :, None] * (q @ (d[:, :, None] * p))
    right = to_columns - e * (q @ to_rows[:, :, None])[:, :, 0]
    if not steps.mass:
        if steps.loose:
            system = system + (column_sums / column_sums.sum(axis=1)[:, None])[:, None, :]
        columns = xp.linalg.solve(system, right[:, :, None])[:, :, 0]
        total = xp.zeros_like(now.total)
    else:
        s = steps.mass
        whole = xp.zeros((k, n + 1, n + 1), dtype=plan.dtype, device=plan.device)
        whole[:, :n, :n] = system
        whole[:, :n, n] = e * (1 - (q @ d[:, :, None])[:, :, 0])
        whole[:, n, :n] = (column_sums - (d[:, None, :] @ plan)[:, 0, :]) / s
        whole[:, n, n] = 1 + damping - (row_sums * d).sum(axis=1) / s
        last = math.log(s) - xp.log(row_sums.sum(axis=1)) - (row_sums * to_rows).sum(axis=1) / s
        solution = xp.linalg.solve(whole, xp.concatenate([right, last[:, None]], axis=1)[:, :, None])[:, :, 0]
        columns, total = solution[:, :n], solution[:, n]
    rows = to_rows - d * ((p @ columns[:, :, None])[:, :, 0] + total[:, None])
    return Potentials(rows, columns, total)


def linearise(xp: Any, side: Side, sums: Array, own: Array, plan: Array, expand: Any) -> tuple[Array, Array, Array]:
    """What a sweep would change on one side, the slope of its step, and the conditional plan."""
    alive = sums > TINY
    sums = xp.where(alive, sums, xp.ones_like(sums))
    x = side.log_weights - (xp.log(sums) - own)
    zero = xp.zeros_like(own)
    change, slope = xp.where(alive, side.step(xp, x) - own, zero), xp.where(alive, side.slope(xp, x), zero)
    return change, slope, plan / sums[expand]


def polish(exponents: Exponents, now: Potentials, steps: Steps, error: float, tol: float) -> tuple[Potentials, float]:
    """Newton steps for one problem, damped as much as they need to beat a sweep (Levenberg, Marquardt)."""
    xp, logs = exponents.xp, exponents.logs
    # Potentials never differ by more, unless forbidden pairs divide the points into parts.
    longest = math.inf if bool(xp.isinf(logs).any()) else 100 + 2 * float(logs.max() - logs.min())
    damping = 1e-9
    for _ in range(MOST_STEPS):
        if error <= tol:
            break
        plan = exponents.plan(now)
        here = Kernel(exponents, now, plan)
        swept, _, reached = sweep(here, now, steps)
        for _ in range(10):
            step = steps.centre(newton(plan, xp, now, steps, damping))
            if not max(float(abs(part).max()) for part in (step.rows, step.columns, step.total)) < longest:
                damping *= 10
                continue
            there = now + step
            new, errors, dual = sweep(Kernel.make(exponents, there), there, steps)
            # Where the dual is level but for rounding, the error tells; elsewhere a small one may be that of a runaway.
            gain = float(dual[0]) - float(reached[0])
            level = gain > -LEVEL * (1 + abs(float(reached[0])))
            gained = gain > 0 or (level and float(errors[0]) < error / 2)
            if gained and math.isfinite(float(errors[0])):
                now, error = new, float(errors[0])
                damping = max(damping / 10, 1e-12)
                break
            damping *= 10
        else:
            return swept, error
    return now, error


def run(exponents: Exponents, now: Potentials, steps: Steps, tol: float, most: int) -> tuple[Any, Any]:
    """Sweep until each problem has converged, or Newton steps are in sight of being quicker.

    Moves the potentials; returns the sweeps made and the errors left.
    """
    k, n = now.columns.shape
    worth = 100 + 3 * n  # sweeps that a few Newton steps cost
    if exponents.xp is np:
        rows, columns = steps.rows, steps.columns
        return _core.sweeps(
            exponents.cost,
            exponents.reg,
            exponents.of_product,
            now.rows,
            now.columns,
            now.total,
            rows.log_weights[0],
            columns.log_weights[0],
            (rows.share, rows.low, rows.high, rows.tau),
            (columns.share, columns.low, columns.high, columns.tau),
            steps.mass,
            tol,
            most,
            worth,
            exponents.threads,
        )
    counts, errors = np.zeros(k, dtype=np.int64), np.full(k, np.inf)
    active, before = np.arange(k), np.full(k, np.inf)
    kernel, here = Kernel.make(exponents, now), now
    for count in range(1, most + 1):
        here, found, _ = sweep(kernel, here, steps)
        error = np.asarray(found.tolist())
        errors[active], counts[active] = error, count
        leave = (error <= tol) | (count == most)
        if count % LOOK == 0:
            to_go = LOOK * np.log(tol / error) / np.log(error / before)
            leave |= ~((to_go >= 0) & (to_go < worth))
            before = error
        if leave.any():
            now.put(active[leave], here.pick(leave))
            if leave.all():
                break
            here, kernel, active, before = here.pick(~leave), kernel.pick(~leave), active[~leave], before[~leave]
        far = kernel.far(here)
        if bool(far.any()):
            kernel.absorb(here, far)
    return counts, errors


def iterate(
    exponents: Exponents, start: Potentials, steps: Steps, tol: float, max_iter: int
) -> tuple[Potentials, Any, Any]:
    """Sweeps, then Newton steps where they pay, until every problem's error is below tol.

    Returns potentials, sweeps and errors. What is done for a problem does not depend on the others of its batch.
    """
    now = start * 1.0
    counts, errors = run(exponents, now, steps, tol, max_iter)
    for i in np.flatnonzero(~(errors <= tol)):
        one = slice(i, i + 1)
        alone = exponents.pick(one)
        while np.isfinite(errors[i]) and not errors[i] <= tol and counts[i] < max_iter:
            there, errors[i] = polish(alone, now.pick(one), steps, errors[i], tol)
            now.put(one, there)
            if not errors[i] <= tol:
                more, found = run(alone, now.pick(one), steps, tol, max_iter - counts[i])
                counts[i], errors[i] = counts[i] + more[0], found[0]
    return now, counts, errors

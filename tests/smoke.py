"""What a wheel has to do where nothing but itself and its dependencies is installed: no compiler, no torch.

Run as a script, by `make wheel` and by the workflow that builds the wheels.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import spadeful as sp


def main() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(400, 2))
    cost = ((x[:50, None] - y[None, :50]) ** 2).sum(-1)
    plan = sp.solve(cost, sp.Partial(mass=0.75))
    assert abs(plan.mass - 0.75) < 1e-12
    assert plan.gap <= 1e-9 * (1 + plan.value)
    assert np.isclose(sp.mass_path(cost).at(0.75).value, plan.value)
    assert sp.solve(cost, sp.Partial(mass=0.75, reg=0.05)).converged
    result = sp.minibatch(x, y, sp.Partial(mass=0.75), batch_size=50, n_batches=20, seed=0)
    assert result.plan.shape == (300, 400)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        options = ["--problem", "partial", "--mass", "0.75", "--batch-size", "50", "--output", "plan.npz"]
        subprocess.run([sys.executable, "-m", "spadeful", "plan", "x.npy", "y.npy", *options], cwd=folder, check=True)
        assert (folder / "plan.npz").exists()
    without = [name for name in ("torch", "sklearn", "matplotlib") if find_spec(name) is None]
    print(f"spadeful {sp.__version__} from {Path(sp.__file__).parent} works, without {', '.join(without) or 'nothing'}")


if __name__ == "__main__":
    main()

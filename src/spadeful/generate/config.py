"""One run as a value: which images, by which method, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spadeful.files import read_settings
from spadeful.generate.method import Adversarial
from spadeful.problems import Balanced, Partial, Problem, Sliced, Unbalanced
from spadeful.training.settings import check_least, check_names, check_types, of_method

METHODS = {
    "m-ot": "mini-batch OT",
    "m-uot": "mini-batch unbalanced OT",
    "m-pot": "mini-batch partial OT",
    "s-ot": "OT between projections onto lines (sliced)",
    "s-pot": "partial OT between projections onto lines (sliced)",
}


@dataclass(frozen=True)
class Config:
    """The settings of a run; the defaults are the paper's for CIFAR-10 (appendix D.3)."""

    data: str
    image_size: int | None = None
    method: str = "m-pot"
    mass: float = of_method(0.98, "m-pot", "s-pot")
    tau: float = of_method(1.0, "m-uot")
    reg: float | None = of_method(None, "m-ot", "m-uot", "m-pot")  # 0.1 for unbalanced transport, else 0
    n_projections: int = of_method(100, "s-ot", "s-pot")  # lines in a loss
    debiased: bool = False
    pairing: str = "paired"
    batch_size: int = 100
    n_batches: int = 2
    iterations: int = 50_000
    latent: int = 32
    width: int | None = None  # channels at half the side: 64, or 24 for grey images
    lr: float = 5e-4
    beta1: float = 0.5
    beta2: float = 0.999
    evaluate_every: int = 500
    score: str = ""  # features that the score is taken in; none without
    score_images: int = 11_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}. Got {self.method!r} instead.")
        least: dict[str, float] = dict.fromkeys(("iterations", "latent", "evaluate_every"), 1)
        check_least(self, least | {"batch_size": 2, "score_images": 2, "seed": 0})
        if self.width is not None and self.width < 1:
            raise ValueError(f"width must be at least 1. Got {self.width} instead.")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be above 0. Got {self.lr!r} instead.")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 must be in [0, 1). Got {self.beta1!r} and {self.beta2!r} instead.")
        self.build_method()

    def problem(self) -> Problem | Sliced:
        if self.method == "m-uot":
            return Unbalanced(self.tau, 0.1 if self.reg is None else self.reg)
        reg = self.reg or 0.0
        plain = Partial(self.mass, reg) if self.method.endswith("-pot") else Balanced(reg)
        return Sliced(plain, self.n_projections, seed=self.seed) if self.method.startswith("s-") else plain

    def build_method(self) -> Adversarial:
        return Adversarial(self.problem(), self.n_batches, self.pairing, self.debiased)  # type: ignore[arg-type]


def make_config(settings: dict[str, Any], where: str = "the settings") -> Config:
    check_names(settings, Config, where)
    return Config(**settings)


def read_config(path: str | Path, changes: dict[str, Any]) -> Config:
    """A config file, TOML or the JSON of an earlier run, with some settings changed."""
    return make_config(read_settings(path) | changes, str(path))

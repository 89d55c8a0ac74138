"""One run as a value: what to adapt to what, by which method, for how long. Read from TOML or the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spadeful.adapt.images import Reading
from spadeful.adapt.methods import ALDA, BA3US, CDAN, DANN, ETN, PADA, ROT, Method, SourceOnly, Transport, TwoStage
from spadeful.adapt.networks import check_initial, check_statistics
from spadeful.adapt.train import Training
from spadeful.files import read_settings
from spadeful.loss import JointCost
from spadeful.problems import Balanced, Partial, Problem, Ramp, Unbalanced
from spadeful.training.settings import check_least, check_names, check_types, of_method, to_json

#: Of a source without a test part, where the accuracy on it is to select.
VALIDATION = 0.1


ONE_STAGE, TWO_STAGES = ("m-ot", "m-uot", "m-pot"), ("ts-ot", "ts-uot", "ts-pot")
TRANSPORTS = (*ONE_STAGE, *TWO_STAGES)
UNBALANCED, PARTIAL = ("m-uot", "ts-uot"), ("m-pot", "ts-pot")
WINDOWED = ("pada", "ba3us")
DISCRIMINATORS = ("dann", "cdan-e", "alda", "etn", *WINDOWED)


@dataclass(frozen=True)
class Config:
    """The settings of a run; the defaults are the paper's for USPS to MNIST (appendix D.1)."""

    source: str
    target: str
    target_classes: str = ""  # those that the target has, if not all: 0-24, or 0,3,7, or names
    method: str = "m-pot"
    mass: float = of_method(0.9, *PARTIAL)
    mass_from: float | None = of_method(None, *PARTIAL)  # where it starts, if it goes to `mass`
    mass_iterations: int = of_method(0, *PARTIAL)  # over so many
    tau: float = of_method(1.0, *UNBALANCED)
    reg: float | None = of_method(None, *TRANSPORTS)  # 0.1 for unbalanced transport, else 0
    alpha: float = of_method(0.1, *TRANSPORTS)
    lam: float = of_method(0.1, *TRANSPORTS)
    eta: float = of_method(1.0, *TRANSPORTS)
    n_batches: int = of_method(1, *TRANSPORTS)
    n_problems: int = of_method(1, *TWO_STAGES)
    batch_norm: str = of_method("frozen", *TWO_STAGES)
    statistics: str = of_method("both", *TRANSPORTS, *DISCRIMINATORS, "rot")  # of batch norm; or "target"
    gather: bool = of_method(False, *ONE_STAGE)  # one problem over the batches of all processes
    threshold: float = of_method(0.9, "alda")
    rho: float = of_method(0.2, "rot")
    hidden: int = of_method(1024, *DISCRIMINATORS)  # units in each hidden layer of a discriminator
    window: int = of_method(500, *WINDOWED)  # iterations after which the classes are weighed anew
    batch_size: int = 500
    iterations: int = 300
    warmup: int = 150
    optimizer: str = "adam"
    schedule: str = "constant"
    lr: float = 4e-4
    head_lr: float = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    bottleneck: int = 512
    initial: str = "authors"  # or "torch": where the weights of the networks for digits begin
    backbone: str = ""  # a vision model of Hugging Face, where source and target are images; see IMAGES
    image_size: int = 224
    crops: int = 1  # of an image in a test: 1, the centre, or 10
    corrupt: str = "refuse"  # or "skip": files that are no images
    evaluate_every: int = 25
    validation: float | None = None  # share of a source without a test part that is held out; see `held_out`
    select: str = "density"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}. Got {self.method!r} instead.")
        check_types(self)
        least = {"n_batches": 1, "n_problems": 1, "bottleneck": 1, "batch_size": 2, "warmup": 0, "seed": 0}
        check_least(self, {**least, "hidden": 1, "mass_iterations": 0, "weight_decay": 0, "momentum": 0})
        check_least(self, {"alpha": 0, "lam": 0, "eta": 0})
        check_statistics(self.statistics)
        check_initial(self.initial)
        if not 0 <= self.held_out < 1:
            raise ValueError(f"validation must be in [0, 1). Got {self.validation!r} instead.")
        if self.gather and METHODS[self.method].build is not transport:
            raise ValueError(f"gather is for m-ot, m-uot and m-pot. Got it with the method {self.method!r}.")
        if self.mass_from is not None:
            Partial(self.mass_from)
            check_least(self, {"mass_iterations": 1})
        self.reading()
        self.build_method()
        self.training()

    @property
    def held_out(self) -> float:
        """The share of the source to test on only, where it has no test part; none unless said or selected by."""
        return self.validation if self.validation is not None else VALIDATION if self.select == "source" else 0.0

    def reading(self, workers: int = 1) -> Reading:
        """How image files are read."""
        return Reading(self.image_size, self.crops, self.corrupt, workers).check()

    def build_method(self) -> Method:
        return METHODS[self.method].build(self)

    def training(self, iterations: int | None = None) -> Training:
        return Training(
            iterations=iterations or self.iterations,
            lr=self.lr,
            optimizer=self.optimizer,  # type: ignore[arg-type]
            schedule=self.schedule,  # type: ignore[arg-type]
            head_lr=self.head_lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            evaluate_every=self.evaluate_every,
            select=self.select,
            seed=self.seed,
        )

    def warm_up(self) -> Config | None:
        """The run that is the warm-up of this one and nothing else."""
        if not self.warmup:
            return None
        plain: dict[str, Any] = {spec.name: spec.default for spec in dataclasses.fields(self) if "of" in spec.metadata}
        return dataclasses.replace(self, method="source-only", iterations=self.warmup, warmup=0, **plain)

    def to_json(self) -> str:
        return to_json(self)


def problem_of(config: Config) -> Problem:
    kind = config.method.split("-")[-1]
    if kind == "uot":
        return Unbalanced(config.tau, 0.1 if config.reg is None else config.reg)
    return Partial(config.mass, config.reg or 0.0) if kind == "pot" else Balanced(config.reg or 0.0)


def schedule_of(config: Config) -> Ramp | None:
    if config.mass_from is None or not config.method.endswith("-pot"):
        return None
    return Ramp(config.mass_from, config.mass, config.mass_iterations)


def transport(config: Config) -> Method:
    cost = JointCost(config.alpha, config.lam)
    return Transport(problem_of(config), cost, config.n_batches, config.eta, schedule_of(config), config.gather)


def two_stage(config: Config) -> Method:
    cost, counts = JointCost(config.alpha, config.lam), (config.n_batches, config.n_problems)
    return TwoStage(problem_of(config), cost, *counts, config.eta, schedule_of(config), config.batch_norm)


class Known(NamedTuple):
    """A method that a config can name."""

    meaning: str
    build: Callable[[Config], Method]


METHODS = {
    "source-only": Known("no adaptation", lambda config: SourceOnly()),
    "m-ot": Known("mini-batch OT (DeepJDOT)", transport),
    "m-uot": Known("mini-batch unbalanced OT (JUMBOT)", transport),
    "m-pot": Known("mini-batch partial OT", transport),
    "dann": Known("domain-adversarial training", lambda config: DANN(config.hidden)),
    "cdan-e": Known("conditional adversarial training, weighted by entropy", lambda config: CDAN(config.hidden)),
    "alda": Known("adversarial-learned loss on pseudo-labels", lambda config: ALDA(config.threshold, config.hidden)),
    "rot": Known("robust optimal transport in the dual", lambda config: ROT(config.rho)),
    "pada": Known("partial targets: weights of classes", lambda config: PADA(config.window, config.hidden)),
    "etn": Known("partial targets: weights of points", lambda config: ETN(hidden=config.hidden)),
    "ba3us": Known("partial targets: made-up batches", lambda config: BA3US(config.window, hidden=config.hidden)),
    "ts-ot": Known("two-stage OT", two_stage),
    "ts-uot": Known("two-stage unbalanced OT", two_stage),
    "ts-pot": Known("two-stage partial OT", two_stage),
}


#: Where a backbone is named, defaults are the paper's for Office-Home.
IMAGES: dict[str, Any] = {
    "mass": 0.6,
    "tau": 0.5,
    "alpha": 0.01,
    "lam": 0.5,
    "batch_size": 65,
    "iterations": 10_000,
    "warmup": 0,
    "optimizer": "sgd",
    "schedule": "decayed",
    "lr": 1e-3,
    "head_lr": 10.0,
    "weight_decay": 5e-4,
    "evaluate_every": 500,
}


def read_config(path: str | Path, changes: dict[str, Any]) -> Config:
    """A config file, TOML or the JSON of an earlier run, with some settings changed."""
    return make_config(read_settings(path) | changes, str(path))


def make_config(settings: dict[str, Any], where: str = "the settings") -> Config:
    check_names(settings, Config, where)
    if settings.get("backbone"):
        settings = IMAGES | ({"reg": 0.01} if str(settings.get("method")).endswith("uot") else {}) | settings
    return Config(**settings)

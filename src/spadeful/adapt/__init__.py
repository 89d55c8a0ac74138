"""Deep domain adaptation (section 4.1 of the paper): data, networks, methods, one trainer, model selection."""

from __future__ import annotations

from spadeful.adapt.call import adapt, measure, predict
from spadeful.adapt.domain import Domain
from spadeful.adapt.estimator import DeepAdapter
from spadeful.adapt.masses import ClassMasses, class_masses
from spadeful.adapt.methods import (
    ALDA,
    BA3US,
    CDAN,
    DANN,
    ETN,
    PADA,
    ROT,
    Batch,
    Method,
    SourceOnly,
    Step,
    Transport,
    TwoStage,
)
from spadeful.adapt.networks import Network, Tapped, feature_network, svhn_network, usps_network
from spadeful.adapt.train import Phase, Record, Training, TrainingError, train

__all__ = [
    "ALDA",
    "BA3US",
    "CDAN",
    "DANN",
    "ETN",
    "PADA",
    "ROT",
    "Batch",
    "ClassMasses",
    "DeepAdapter",
    "Domain",
    "Method",
    "Network",
    "Phase",
    "Record",
    "SourceOnly",
    "Step",
    "Tapped",
    "Training",
    "TrainingError",
    "Transport",
    "TwoStage",
    "adapt",
    "class_masses",
    "feature_network",
    "measure",
    "predict",
    "svhn_network",
    "train",
    "usps_network",
]

"""Deep domain adaptation (section 4.1 of the paper): data, networks, methods, one trainer, model selection."""

from __future__ import annotations

from spadeful.adapt.backbones import Backbone, backbone_network, load_backbone
from spadeful.adapt.call import adapt, measure, predict
from spadeful.adapt.domain import Domain
from spadeful.adapt.estimator import DeepAdapter
from spadeful.adapt.images import ImageFiles, Reading, read_folder
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
from spadeful.adapt.train import Phase, Training, train
from spadeful.training.loop import TrainingError
from spadeful.training.record import Record

__all__ = [
    "ALDA",
    "BA3US",
    "CDAN",
    "DANN",
    "ETN",
    "PADA",
    "ROT",
    "Backbone",
    "Batch",
    "ClassMasses",
    "DeepAdapter",
    "Domain",
    "ImageFiles",
    "Method",
    "Network",
    "Phase",
    "Reading",
    "Record",
    "SourceOnly",
    "Step",
    "Tapped",
    "Training",
    "TrainingError",
    "Transport",
    "TwoStage",
    "adapt",
    "backbone_network",
    "class_masses",
    "feature_network",
    "load_backbone",
    "measure",
    "predict",
    "read_folder",
    "svhn_network",
    "train",
    "usps_network",
]

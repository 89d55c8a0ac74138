"""Networks: a feature extractor G and a classifier F, as the paper names them (appendix D.1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def check_statistics(name: str) -> None:
    if name not in ("both", "target"):
        raise ValueError(f"statistics must be 'both' or 'target'. Got {name!r} instead.")


def check_initial(name: str) -> None:
    if name not in ("authors", "torch"):
        raise ValueError(f"initial must be 'authors' or 'torch'. Got {name!r} instead.")


class Network(nn.Module):
    """G and F: forward gives the features G(x) and the logits F(G(x)).

    `rowwise` says that no point sees the others of its batch, as it would in batch norm. `statistics` says whose
    batches move the running averages of batch norm, by which the network is tested: "both", as with the authors, or
    "target", since that is what it will see.
    """

    def __init__(
        self, features: nn.Module, classifier: nn.Module, rowwise: bool = False, statistics: str = "both"
    ) -> None:
        super().__init__()
        check_statistics(statistics)
        self.features, self.classifier = features, classifier
        self.rowwise, self.statistics = rowwise, statistics

    @property
    def new_layers(self) -> list[nn.Module]:
        """What starts from nothing and may learn faster: the classifier, and what the extractor says of itself."""
        return [self.classifier, *getattr(self.features, "new_layers", [])]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x)
        return features, self.classifier(features)


class Tapped(nn.Module):
    """A whole model whose features are what goes into one of its layers, by name."""

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        names = dict(model.named_modules())
        if layer not in names or not layer:
            raise ValueError(
                f"layer must name a layer of the model. Got {layer!r}; it has {', '.join(filter(None, names))}."
            )
        self.model, self.layer = model, layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []
        # For this pass only: the model stays as it was for whoever else calls or copies it.
        hook = self.model.get_submodule(self.layer).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            logits: Any = self.model(x)
        finally:
            hook.remove()
        if len(seen) != 1:
            raise RuntimeError(f"The layer {self.layer!r} must run once in a forward pass. It ran {len(seen)} times.")
        return seen[0].flatten(1), getattr(logits, "logits", logits)


def block(inputs: int, outputs: int, kernel: int, padding: int, pool: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.BatchNorm2d(outputs), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)] if pool else layers


def svhn_network(classes: int = 10, initial: str = "authors") -> Network:
    """For 32x32 RGB: six 3x3 convolutions. The sigmoid comes after the linear layer, as in the authors' code."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [*block(inputs, outputs, 3, 1), *block(outputs, outputs, 3, 1, pool=True)]
    features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 128), nn.Sigmoid())
    return initialise(Network(features, nn.Linear(128, classes)), initial)


def usps_network(classes: int = 10, initial: str = "authors") -> Network:
    """For 28x28 of one channel: convolutions of 5x5, 3x3 and 3x3 without padding."""
    layers = [*block(1, 32, 5, 0, pool=True), *block(32, 64, 3, 0), *block(64, 128, 3, 0, pool=True)]
    features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 128), nn.Sigmoid())
    return initialise(Network(features, nn.Linear(128, classes)), initial)


def feature_network(inputs: int, classes: int, bottleneck: int = 512) -> Network:
    """For features of a frozen backbone: a linear bottleneck and a linear classifier, Xavier-normal."""
    return Network(xavier_linear(inputs, bottleneck), xavier_linear(bottleneck, classes), rowwise=True)


def xavier_linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def initialise(network: Network, initial: str = "authors") -> Network:
    """Weights as the authors' code has them, convolutions N(0, .02), batch norm N(1, .02), linear N(0, .1); or torch's.

    The channels are laid out last, which makes the convolutions 1.5 times as fast.
    """
    check_initial(initial)
    for layer in network.modules() if initial == "authors" else ():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.1)
            nn.init.zeros_(layer.bias)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def network_for(shape: tuple[int, ...], classes: int, bottleneck: int = 512, initial: str = "authors") -> Network:
    """The paper's network for inputs of a shape: features (d,), 28x28 of one channel, or 32x32 RGB.

    `initial` says where the weights of the convolutional ones begin; the paper does not.
    """
    if len(shape) == 1:
        return feature_network(shape[0], classes, bottleneck)
    if shape == (1, 28, 28):
        return usps_network(classes, initial)
    if shape == (3, 32, 32):
        return svhn_network(classes, initial)
    raise ValueError(
        f"There are networks for features (d,), images (1, 28, 28) and (3, 32, 32). Got inputs of {shape}; resize "
        "them, or pass a network of your own."
    )

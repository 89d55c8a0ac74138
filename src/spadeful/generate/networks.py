"""Generators of images and the feature networks that tell them from real ones (appendix D.3 of the paper).

One pattern for every size: a side of 4 to 7 pixels is doubled until it is that of the images; features end at a side
of 4. At 32x32 and 64x64 in colour these are the paper's networks for CIFAR-10 and CelebA.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Shape = tuple[int, int, int]


def doublings(shape: Shape) -> int:
    """How often the side doubles.

    >>> doublings((1, 28, 28)), doublings((3, 32, 32)), doublings((3, 64, 64))
    (2, 3, 4)
    """
    _, height, width = shape
    times = height.bit_length() - 3
    if height != width or times < 1 or height % 2**times:
        raise ValueError(
            "Images must be square, with a side of 4, 5, 6 or 7 pixels doubled once or more: 28, 32, 64, 96 or 128, "
            f"for example. Got {height}x{width} instead; ask for another size."
        )
    return times


def usual_width(shape: Shape) -> int:
    """Channels at half the side of the images: the paper's 64 in colour; fewer do for grey images."""
    return 24 if shape[0] == 1 else 64


class Generator(nn.Sequential):
    """Noise (b, latent) to images `(b, *shape)` from -1 to 1."""

    def __init__(self, shape: Shape, latent: int = 32, width: int | None = None) -> None:
        times, width = doublings(shape), width or usual_width(shape)
        channels = [width * 2**i for i in reversed(range(times))]
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent, channels[0], shape[1] // 2**times, bias=False)]
        for before, after in zip(channels, [*channels[1:], shape[0]], strict=True):
            layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)]
        super().__init__(*layers, nn.Tanh())
        self.latent, self.shape = latent, shape
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the faster layout

    def forward(self, noise: Tensor) -> Tensor:
        images: Tensor = super().forward(noise[:, :, None, None])  # type: ignore[no-untyped-call]
        return images

    @staticmethod
    def of(weights: Mapping[str, Tensor]) -> Generator:
        """The generator that has these weights."""
        names = sorted((name for name in weights if weights[name].ndim == 4), key=lambda name: int(name.split(".")[0]))
        layers = [weights[name] for name in names]  # files list them by name: 0, 12, 3
        if not layers:
            raise ValueError("There must be weights of a generator. Got none.")
        side, channels = layers[0].shape[2] * 2 ** (len(layers) - 1), layers[-1].shape[1]
        generator = Generator((channels, side, side), layers[0].shape[0], layers[-1].shape[0])
        generator.load_state_dict(weights)
        return generator


class FeatureNetwork(nn.Sequential):
    """Images `(b, *shape)` to features (b, d) from -1 to 1, at a side of 4 pixels."""

    def __init__(self, shape: Shape, width: int | None = None) -> None:
        times, width = doublings(shape), width or usual_width(shape)
        halving, side = (4, 2, 1), shape[1] // 2**times  # kernel, stride and padding
        convolutions = [halving] * times + [(side - 3, 1, 0)] * (side > 4)
        channels = [shape[0], *(width * 2**i for i in range(len(convolutions)))]
        layers: list[nn.Module] = []
        for i, (kernel, stride, padding) in enumerate(convolutions):
            if i > 1:
                layers.append(nn.BatchNorm2d(channels[i]))
            if i > 0:
                layers.append(nn.LeakyReLU(0.2))
            layers.append(nn.Conv2d(channels[i], channels[i + 1], kernel, stride, padding, bias=False))
        if times > 3:  # as the paper has it at 64x64, and not at 32x32
            layers.append(nn.BatchNorm2d(channels[-1]))
        super().__init__(*layers, nn.Tanh(), nn.Flatten())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

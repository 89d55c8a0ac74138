"""Images from a generator: samples, ways between them, and sheets of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spadeful.adapt.formats import Bytes
from spadeful.files import replacing

#: Images that are generated together.
TOGETHER = 500


@torch.no_grad()
def generated(generator: nn.Module, noise: Tensor) -> Iterator[Tensor]:
    """Images of noise (n, latent), some at a time, in evaluation mode; training goes on as if nothing had been."""
    device = next(generator.parameters()).device
    training = generator.training
    generator.eval()
    try:
        for part in noise.split(TOGETHER):  # type: ignore[no-untyped-call]
            yield generator(part.to(device)).float().cpu()
    finally:
        generator.train(training)


def noise(n: int, latent: int, seed: int) -> Tensor:
    return torch.randn((n, latent), generator=torch.Generator().manual_seed(seed))


def ways(latent: int, rows: int, steps: int, seed: int) -> Tensor:
    """Noise (rows * steps, latent) on the way from one draw to another, by angles: all of it as long as draws are.

    >>> bool(ways(32, rows=1, steps=3, seed=0).norm(dim=1).std() < 0.5)
    True
    """
    start, end = noise(2 * rows, latent, seed)[:, None].chunk(2)
    angle = torch.linspace(0, torch.pi / 2, steps)[:, None]
    return (start * angle.cos() + end * angle.sin()).flatten(0, 1)


def as_bytes(images: Tensor) -> Bytes:
    """(n, C, H, W) from -1 to 1 to (n, H, W, C) of bytes."""
    pixels = ((images + 1) * 127.5).round().clamp(0, 255).byte()
    return pixels.permute(0, 2, 3, 1).contiguous().numpy()


def sheet(images: Bytes, columns: int) -> Bytes:
    """Images (n, H, W, C) side by side, a black pixel between them.

    >>> sheet(np.zeros((5, 8, 8, 1), np.uint8), columns=3).shape
    (17, 26, 1)
    """
    n, height, width, channels = images.shape
    rows = -(-n // columns)
    cells = np.zeros((rows * columns, height + 1, width + 1, channels), np.uint8)
    cells[:n, :-1, :-1] = images
    whole = cells.reshape(rows, columns, height + 1, width + 1, channels).swapaxes(1, 2)
    return np.ascontiguousarray(whole.reshape(rows * (height + 1), columns * (width + 1), channels)[:-1, :-1])


def write_sheet(path: Path, images: Tensor, columns: int, force: bool = False) -> None:
    from PIL import Image

    pixels = sheet(as_bytes(images), columns)
    with replacing(path, force) as temporary:
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(temporary)

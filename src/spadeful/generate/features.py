"""What a score looks at: the features of Inception, of a classifier that was trained here, or of any vision model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spadeful.adapt.backbones import load_backbone
from spadeful.adapt.call import adapt
from spadeful.adapt.domain import resized
from spadeful.adapt.methods.source_only import SourceOnly
from spadeful.adapt.networks import network_for
from spadeful.adapt.train import Training
from spadeful.batches import check_seed
from spadeful.files import check_free
from spadeful.generate.data import check_batch_size, labelled
from spadeful.training import states

#: What vision models of Hugging Face are shown, pixels a side.
SEEN = 224
#: Numbers that a network is shown together.
MOST_NUMBERS = 8_000_000

INCEPTION_NEEDS = (
    "FID needs torch-fidelity, which needs torchvision: pip install 'spadeful[fid]'. torchvision must be built for the "
    "torch that is installed, a CPU build for a CPU build. Without it, name other features: those of a classifier that "
    "`spadeful generate features` trains, or of a vision model."
)


@dataclass(frozen=True, eq=False)
class Features:
    """A network that looks at images in bytes, as files would hold them, at a size and in colours of its own."""

    network: Callable[[Tensor], Tensor]  # from (b, *shape), -1 to 1, to (b, d)
    shape: tuple[int, int, int]
    name: str
    digest: str  # of the weights
    device: Any = "cpu"
    inception: bool = False  # which also resizes in a way of its own

    @property
    def score_name(self) -> str:
        """Only in the features of Inception is the distance called FID."""
        return "FID" if self.inception else f"Frechet distance in the features of {self.name}"

    @property
    def together(self) -> int:
        """How many images are looked at together."""
        return max(1, min(500, MOST_NUMBERS // int(np.prod(self.shape))))

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Of images (b, C, H, W) from -1 to 1 the features (b, d), on the CPU."""
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise ValueError(f"Images must be (b, 1 or 3, H, W). Got {tuple(images.shape)} instead.")
        if not torch.isfinite(images).all():
            raise ValueError("Images must be finite, from -1 to 1. Got some that are not.")
        pixels = ((images.to(self.device).float() + 1) * 127.5).round().clamp(0, 255)
        channels, size, _ = self.shape
        seen = pixels.expand(-1, channels, -1, -1) if self.inception else resized(pixels, size, channels)
        return self.network(seen / 127.5 - 1).float().cpu()

    @staticmethod
    def load(path: str | Path, device: Any = "cpu") -> Features:
        """Features by what holds their weights.

        Parameters
        ----------
        path : file, folder or name
            A file that `train_features` wrote; "inception", whose weights are downloaded, or their file ending in
            .pth; or a vision model of Hugging Face, its folder or name.
        """
        ending = Path(path).suffix.lower()
        if str(path) == "inception" or ending in (".pth", ".pt"):
            return inception(None if str(path) == "inception" else Path(path), device)
        if ending == ".safetensors":
            return trained(Path(path), device)
        network = load_backbone(path).eval().to(device)
        network.width(SEEN)
        return Features(network, (3, SEEN, SEEN), Path(path).name, digest(network), device)


def digest(network: nn.Module) -> str:
    """The same for the same weights and buffers, also those that are not kept, such as how colours are scaled."""
    found = hashlib.sha256(type(network).__name__.encode())
    for name, value in sorted({**network.state_dict(), **dict(network.named_buffers())}.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def trained(path: Path, device: Any) -> Features:
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. `spadeful generate features --data mnist -o {path}` writes one."
        )
    tensors, state = states.read(path)
    try:
        shape, classes, name = tuple(state["shape"]), state["classes"], str(state["name"])
        network = network_for(shape, classes)
        states.unpack(tensors, {"network": network})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} must hold features that `spadeful generate features` wrote. It holds something else: {error}"
        ) from None
    extractor = network.features.eval().to(device)
    return Features(extractor, shape, name, digest(extractor), device)


def train_features(
    which: str,
    output: str | Path,
    data: str | Path | None = None,
    *,
    iterations: int = 1000,
    batch_size: int = 100,
    seed: int = 0,
    force: bool = False,
    progress: bool = False,
) -> float:
    """Train the paper's classifier of digits, or of small photos, and keep it as features of images.

    Parameters
    ----------
    which : "mnist" or "cifar10"
        CelebA has no classes here. Its images can be looked at by a classifier of CIFAR-10, at 32x32.
    output : file
        Ends in .safetensors.

    Returns
    -------
    float
        The classifier's accuracy on the test part, in per cent.
    """
    output = check_free(output, force)
    if output.suffix.lower() != ".safetensors":
        raise ValueError(f"{output} must end in .safetensors. Got {output.suffix!r} instead.")
    training = Training(iterations, evaluate_every=iterations, seed=check_seed(seed), select="source")
    train, test = (labelled(which, part, data) for part in ("train", "test"))
    check_batch_size(batch_size, train)
    torch.manual_seed(seed)
    network = network_for(train.shape, len(train.classes))
    record = adapt(
        network,
        train,
        train.without_labels(),
        SourceOnly(),
        training,
        batch_size=batch_size,
        test={"source": test},
        progress=progress,
    )
    accuracy = float(record.rows[-1]["source_accuracy"])
    name = f"a {which} classifier"
    weights = {f"network.{key}": value.contiguous() for key, value in network.state_dict().items()}
    states.write(
        output, weights, {"name": name, "shape": train.shape, "classes": len(train.classes), "accuracy": accuracy}
    )
    return accuracy


def inception(weights: Path | None, device: Any) -> Features:
    """Inception as torch-fidelity has it: the weights and the resizing of the FID's authors."""
    try:
        from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3, FeatureExtractorInceptionV3
    except (ImportError, RuntimeError, OSError) as missing:  # the others come of a torchvision for another torch
        raise ImportError(f"{INCEPTION_NEEDS} ({missing})") from missing
    weights = weights or downloaded(URL_INCEPTION_V3)
    if not weights.is_file():
        raise FileNotFoundError(f"There is no file {weights}. It must hold the weights of torch-fidelity's Inception.")
    try:
        # torch-fidelity loads pickles of any kind; one that passes here holds tensors and nothing that runs.
        torch.load(weights, weights_only=True)
        network = FeatureExtractorInceptionV3("inception", ["2048"], str(weights)).to(device)
    except (UnpicklingError, RuntimeError, TypeError, AttributeError, EOFError, KeyError) as error:
        raise ValueError(
            f"{weights} must hold the weights of torch-fidelity's Inception and nothing else. It does not, or is "
            "damaged; remove it, or name another."
        ) from error

    def look(images: Tensor) -> Tensor:
        found: Tensor = network(((images + 1) * 127.5).round().byte())[0]
        return found

    return Features(look, (3, 299, 299), "Inception", digest(network), device, inception=True)


def downloaded(url: str) -> Path:
    """A file that is kept where torch keeps such files."""
    path = Path(torch.hub.get_dir(), "checkpoints", Path(url).name)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), progress=False)
        except OSError as error:
            raise OSError(f"{url} cannot be downloaded: {error}. Download it elsewhere, and name its file.") from None
    return path

"""From folders of images to a file of features: what `spadeful features` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from spadeful.adapt.backbones import Backbone, load_backbone
from spadeful.adapt.call import device_named
from spadeful.adapt.domain import Domain
from spadeful.adapt.images import Reading, read_folder
from spadeful.adapt.streams import in_batches
from spadeful.files import check_free, replacing
from spadeful.progress import progress_bar, waiting


def run(
    folders: Sequence[Path],
    backbone: str,
    output: Path,
    *,
    reading: Reading | None = None,
    device: str = "cpu",
    force: bool = False,
    progress: bool = False,
) -> str:
    """Write the features of the images in some folders, each of them a domain; returns what there is to say."""
    check_free(output, force)
    if output.suffix.lower() != ".npz":
        raise ValueError(f"{output} must end in .npz. Got {output.suffix!r} instead.")
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"Domains are named as their folders, which must differ. Got {', '.join(names)} instead.")
    domains = [read_folder(folder, reading, progress=progress) for folder in folders]
    if len({domain.y is None for domain in domains}) > 1:
        raise ValueError(
            "Domains with class folders and without must go to files of their own. Got both: "
            + ", ".join(map(repr, domains))
        )
    with waiting(f"loading {backbone}", progress):
        model = load_backbone(backbone)
    model.width(domains[0].shape[1])
    place = device_named(device)
    model.to(place)
    x = np.concatenate([features_of(model, domain, place, progress) for domain in domains])
    classes = sorted({name for domain in domains for name in domain.classes})
    arrays = {
        "x": x,
        "domain": np.repeat(np.arange(len(domains)), [len(domain) for domain in domains]),
        "domain_names": np.array(names),
        "path": np.concatenate([domain.x for domain in domains]),
    }
    if classes:
        numbers = [np.array([classes.index(name) for name in domain.classes])[domain.y] for domain in domains]
        arrays |= {"y": np.concatenate(numbers), "class_names": np.array(classes)}
    with replacing(output, force) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return f"{output}: {len(x)} images as {x.shape[1]} features, of {', '.join(names)}"


@torch.no_grad()
def features_of(model: Backbone, domain: Domain, device: torch.device, progress: bool = False) -> NDArray[np.float32]:
    """The features of all points, float32 (n, d); of several crops of an image, their mean."""
    model.eval()
    parts: list[NDArray[np.float32]] = []
    with progress_bar(f"features of {domain.name}", len(domain), progress) as advance:
        for x in in_batches(domain):
            found = model(x.flatten(0, -4).to(device)).float().cpu()
            parts.append(found.unflatten(0, (len(x), -1)).mean(1).numpy())
            advance(len(x))
    return np.concatenate(parts)

"""Vision models of Hugging Face as feature extractors, and the paper's network for photographs (appendix D.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from spadeful.adapt.networks import Network, xavier_linear

#: Mean and deviation of the colours of ImageNet, for models that do not say what they were trained with.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """From images (b, 3, H, W) between -1 and 1 to the pooled features (b, d) of a model."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: nn.Module, mean: Any = MEAN, deviation: Any = DEVIATION) -> None:
        super().__init__()
        self.model = model
        for name, values in (("mean", mean), ("deviation", deviation)):
            # Not among the weights: they come with the model and do not change.
            self.register_buffer(name, torch.tensor(values).float().view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Any = self.model(((x + 1) / 2 - self.mean) / self.deviation)
        pooled: Tensor | None = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        hidden: Tensor = found.last_hidden_state
        return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden[:, 0]  # a map, or tokens of which the first is all

    def width(self, size: int) -> int:
        """The number of features of an image of so many pixels a side."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                return int(self(self.mean.new_zeros(1, 3, size, size)).shape[1])
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"The backbone must take images of {size}x{size}. It does not: {error}. Pass --set image_size=..."
            ) from None
        finally:
            self.train(training)


class Bottleneck(nn.Sequential):
    """A backbone with weights that are known, and a new layer on it."""

    def __init__(self, backbone: Backbone, width: int, size: int) -> None:
        super().__init__(backbone, xavier_linear(backbone.width(size), width))

    @property
    def new_layers(self) -> list[nn.Module]:
        return [self[1]]


def load_backbone(name: str | Path) -> Backbone:
    """A vision model by its name on the hub of Hugging Face, or from a folder with its config and weights.

    Weights are read from safetensors and models are those of transformers itself: nothing that is loaded can run code.
    """
    try:
        from transformers import AutoModel
        from transformers.utils import hub
    except ImportError as missing:
        raise ImportError("Backbones need transformers: pip install 'spadeful[adapt]'") from missing
    name = str(name)
    if not name or (Path(name).is_dir() and not Path(name, "config.json").is_file()):
        raise ValueError(
            f"backbone must name a vision model, such as microsoft/resnet-50, or its folder. Got {name!r}."
        )
    model: Any
    try:
        with quiet():
            model, info = AutoModel.from_pretrained(
                name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
            found = hub.cached_file(name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"backbone must name a vision model of Hugging Face, or a folder with its config.json and "
            f"model.safetensors. {name} cannot be loaded: {error}"
        ) from None
    model = getattr(model, "vision_model", model)  # the half of CLIP and its like that sees
    if model.main_input_name != "pixel_values":
        raise ValueError(f"backbone must be a vision model. {name} takes {model.main_input_name}.")
    missing_weights = {key for key in info["missing_keys"] if not key.startswith("pooler.")}
    if missing_weights:
        raise ValueError(f"The weights of {name} must be complete. Without {', '.join(sorted(missing_weights)[:5])}.")
    if info["missing_keys"]:
        model.pooler = None  # published without its weights: the first token is taken in its place
    settings = json.loads(Path(found).read_text()) if found else {}
    return Backbone(model, settings.get("image_mean", MEAN), settings.get("image_std", DEVIATION))


@contextmanager
def quiet() -> Iterator[None]:
    """Without the bars of transformers, its word on the weights of a classifier, which is not wanted, and the hub's
    word on each attempt to reach it, since what comes of them all is told once."""
    from huggingface_hub.utils import logging as of_hub
    from transformers.utils import logging as of_models

    its: Any = of_models
    both: tuple[Any, Any] = of_models, of_hub
    before, bars = [each.get_verbosity() for each in both], its.is_progress_bar_enabled()
    for each in both:
        each.set_verbosity_error()
    its.disable_progress_bar()
    try:
        yield
    finally:
        for each, verbosity in zip(both, before, strict=True):
            each.set_verbosity(verbosity)
        if bars:
            its.enable_progress_bar()


def backbone_network(name: str | Path, classes: int, bottleneck: int = 512, size: int = 224) -> Network:
    """A backbone, a linear bottleneck, whose features are transported, and a linear classifier."""
    features = Bottleneck(load_backbone(name), bottleneck, size)
    return Network(features, xavier_linear(bottleneck, classes))

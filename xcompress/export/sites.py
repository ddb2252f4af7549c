"""The products of a student, by the names of the modules they come from."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from xcompress.export.blocks import Floats
from xcompress.export.products import GELU_LEAST, Site
from xcompress.student import Layer, Student


def sites(student: Student) -> dict[str, Site]:
    """Return every product with a weight, from the first to the last.

    The scale of the attention scores, 1 / sqrt(H / heads), lies in the queries' weights.
    """
    found = [_site("embeddings.projection", student.embeddings.projection)]
    for number, layer in enumerate(student.unit):
        if isinstance(layer, Layer):
            found += _layer_sites(f"unit.{number}", layer)
    return {site.name: site for site in [*found, _site("head", student.head)] if site is not None}


def _layer_sites(name: str, layer: Layer) -> Iterator[Site | None]:
    width = layer.attention.in_features
    scale = np.ones(3 * width, dtype=np.float32)
    scale[:width] = 1 / math.sqrt(width // layer.heads)
    yield _site(f"{name}.attention", layer.attention, scale)
    yield _site(f"{name}.attention_output", layer.attention_output)
    yield _site(f"{name}.intermediate", layer.intermediate)
    yield _site(f"{name}.output", layer.output, least=GELU_LEAST)


def _site(
    name: str, linear: nn.Linear | None, scale: Floats | float = 1.0, *, least: float | None = None
) -> Site | None:
    if linear is None:
        return None
    weight = np.ascontiguousarray(floats(linear.weight).T * scale, dtype=np.float32)
    bias = None if linear.bias is None else (floats(linear.bias) * scale).astype(np.float32)
    return Site(name, weight, bias, least)


def floats(weight: Tensor) -> Floats:
    """Return a weight as a float32 array."""
    return weight.detach().to(torch.float32).cpu().numpy()


def int8_bytes(found: Mapping[str, Site]) -> dict[str, int]:
    """Return how many bytes each site's int8 weights take."""
    return {name: site.weight.size for name, site in found.items()}

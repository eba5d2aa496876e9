"""The published module tree and parameter names over our geometry model."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from longtake.errors import CheckpointError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.heads.dense import DenseMap, DensePositions
from longtake.geometry.model import GeometryModel
from longtake.weights.checkpoint import some
from longtake.weights.published import our_name, published_name

MASK_TOKEN = "aggregator.patch_embed.mask_token"  # noqa: S105

State = Mapping[str, Shaped[Tensor, "..."]]


class Aggregator(nn.Module):
    """What the published code calls so, to be cast or moved as one: encoder, special tokens and trunk."""

    def __init__(self, network: GeometryModel) -> None:
        super().__init__()
        self.encoder = network.encoder
        self.tokens = network.tokens
        self.trunk = network.trunk
        self.mask_token = nn.Parameter(torch.zeros(1, network.config.width))
        """Never read; carried so that checkpoints come out as they went in."""


class NoDepth(nn.Module):
    """Stands where the depth head would and puts every pixel at 1, so that windows keep the scale they came with."""

    def forward(
        self, levels: Sequence[Float[Tensor, "batch frames patches channels"]], positions: DensePositions
    ) -> DenseMap:
        ones = levels[0].new_ones(*levels[0].shape[:2], *positions.pixels.size)
        return DenseMap(values=ones.unsqueeze(-1), confidence=ones)


class PublishedModule(nn.Module):
    """A network registered part by part as the published tree has it, with the published names in its state."""

    def __init__(self, config: GeometryConfig, *, enable_depth: bool) -> None:
        super().__init__()
        network = GeometryModel(config)
        if not enable_depth:
            network.register_module("depth_head", NoDepth())
        # within a tuple the network is not registered itself, so that no part is registered twice
        self._held = (network,)
        self.aggregator = Aggregator(network)
        self.camera_head = network.camera_head
        self.depth_head = network.depth_head if enable_depth else None
        self.point_head = network.points_head
        self.local_point_head = network.camera_points_head

    @property
    def network(self) -> GeometryModel:
        """The same weights as longtake's own model."""
        return self._held[0]

    def state_dict(  # type: ignore[override]
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters under the published names."""
        destination = {} if destination is None else destination
        state = published_state(self.network, self.aggregator.mask_token, keep_vars=keep_vars)
        destination.update({prefix + name: value for name, value in state.items()})
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> "IncompatibleKeys":
        """Take published weights; parts that stay random are warned of, and refused if strict."""
        return load_published(self.network, self.aggregator.mask_token, state_dict, strict=strict, assign=assign)


class IncompatibleKeys(NamedTuple):
    """What a state dict lacked, and what of it had no place, under the published names."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def published_state(network: GeometryModel, mask_token: Tensor, *, keep_vars: bool) -> dict[str, Tensor]:
    """The network's parameters under the published names."""
    state: dict[str, Tensor] = {}
    for name, value in network.state_dict(keep_vars=keep_vars).items():
        theirs = published_name(name)
        assert theirs is not None
        state[theirs] = value
    return state | {MASK_TOKEN: mask_token if keep_vars else mask_token.detach()}


def load_published(
    network: GeometryModel, mask_token: Tensor, state: State, *, strict: bool, assign: bool
) -> IncompatibleKeys:
    """Take what fits; refuse wrong shapes and, if strict, any gap. What stays as it was initialised is warned of."""
    places = network.state_dict()
    ours = {key: our_name(key) for key in state if key != MASK_TOKEN}
    fitting = {name: state[key] for key, name in ours.items() if name in places}
    report = IncompatibleKeys(
        missing_keys=[published_name(name) or name for name in places if name not in fitting],
        unexpected_keys=[key for key, name in ours.items() if name not in places],
    )
    _refuse_misfits(report, fitting, places, strict=strict)
    network.load_state_dict(fitting, strict=False, assign=assign)
    if MASK_TOKEN in state:
        with torch.no_grad():
            mask_token.copy_(state[MASK_TOKEN])
    if report.missing_keys:
        warnings.warn(_missing_weights_sentence(report.missing_keys), stacklevel=3)
    return report


def _refuse_misfits(report: IncompatibleKeys, fitting: State, places: State, *, strict: bool) -> None:
    missing, unexpected = report
    if not fitting:
        raise CheckpointError(
            f"None of the {len(unexpected)} names ({some(unexpected)}) is of this model; give the tensors "
            "themselves, for instance checkpoint['model']."
        )
    if strict and (missing or unexpected):
        wrong = [f"{len(missing)} tensors are missing ({some(missing)})"] if missing else []
        wrong += [f"{len(unexpected)} have no place ({some(unexpected)})"] if unexpected else []
        raise CheckpointError(
            f"Expected the weights of this model, but {' and '.join(wrong)}; build it with the heads that the "
            "checkpoint has."
        )
    for name, value in fitting.items():
        if value.shape != places[name].shape:
            raise CheckpointError(
                f"Expected {published_name(name)} of shape {tuple(places[name].shape)}, but got "
                f"{tuple(value.shape)}; build the model with the sizes that the checkpoint has."
            )


def _missing_weights_sentence(missing: list[str]) -> str:
    counts = Counter(key.partition(".")[0] for key in missing)
    gaps = ", ".join(f"{part} ({count} tensors)" for part, count in counts.items())
    return f"The checkpoint has no weights for {gaps}; what depends on them is as random as it was initialised."

"""Which model a file of weights is of, told by the names in it; and published names, turned into ours."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from longtake.errors import InputError

UNUSED = frozenset({"aggregator.patch_embed.mask_token"})
"""Stored but never read: it served the encoder's pre-training."""

_LEAF = r"\.(?:weight|bias)"
_BLOCK = rf"\d+\.(?:(?:norm[12]|attn\.(?:qkv|proj|q_norm|k_norm)|mlp\.fc[12]){_LEAF}|ls[12]\.gamma)"
_CONV = rf"conv[12]{_LEAF}"
_DENSE_HEADS = (("depth_head", "depth_head"), ("point_head", "points_head"), ("local_point_head", "camera_points_head"))

_WHOLE = (
    (r"aggregator\.patch_embed\.cls_token", "encoder.class_token"),
    (r"aggregator\.patch_embed\.register_tokens", "encoder.registers"),
    (r"aggregator\.patch_embed\.pos_embed", "encoder.positions"),
    (rf"aggregator\.patch_embed\.patch_embed\.(proj{_LEAF})", r"encoder.patches.\1"),
    (rf"aggregator\.patch_embed\.(blocks\.{_BLOCK}|norm{_LEAF})", r"encoder.\1"),
    (r"aggregator\.(camera|scale)_token", r"tokens.\1"),
    (r"aggregator\.register_token", "tokens.registers"),
    (rf"aggregator\.((?:frame|global)_blocks\.{_BLOCK})", r"trunk.\1"),
    (r"camera_head\.empty_pose_tokens", "camera_head.first_pose"),
    (rf"camera_head\.(token_norm{_LEAF})", r"camera_head.\1"),
    (rf"camera_head\.embed_pose({_LEAF})", r"camera_head.embed\1"),
    (rf"camera_head\.poseLN_modulation\.1({_LEAF})", r"camera_head.modulation\1"),
    (rf"camera_head\.trunk\.({_BLOCK})", r"camera_head.blocks.\1"),
    (rf"camera_head\.trunk_norm({_LEAF})", r"camera_head.norm\1"),
    (rf"camera_head\.pose_branch\.(fc[12]{_LEAF})", r"camera_head.correction.\1"),
)
_DENSE = (
    (rf"(norm{_LEAF})", r"\1"),
    (rf"projects\.([0-3]{_LEAF})", r"project.\1"),
    (rf"resize_layers\.([013]{_LEAF})", r"resize.\1"),
    *((rf"scratch\.layer{level + 1}_rn(\.weight)", rf"reduce.{level}\1") for level in range(4)),
    *((rf"scratch\.refinenet{level + 1}\.resConfUnit1\.({_CONV})", rf"fuse.{level}.fine.\1") for level in range(3)),
    *((rf"scratch\.refinenet{level + 1}\.resConfUnit2\.({_CONV})", rf"fuse.{level}.sum.\1") for level in range(3)),
    *((rf"scratch\.refinenet{level + 1}\.out_conv({_LEAF})", rf"fuse.{level}.out\1") for level in range(3)),
    (rf"scratch\.refinenet4\.resConfUnit2\.({_CONV})", r"fuse_coarsest.sum.\1"),
    (rf"scratch\.refinenet4\.out_conv({_LEAF})", r"fuse_coarsest.out\1"),
    (rf"scratch\.output_conv1({_LEAF})", r"narrow\1"),
    (rf"scratch\.output_conv2\.0({_LEAF})", r"hidden\1"),
    (rf"scratch\.output_conv2\.2({_LEAF})", r"output\1"),
)
_PAIRS = (
    *_WHOLE,
    *((rf"{theirs}\.{inner}", f"{mine}.dpt.{name}") for theirs, mine in _DENSE_HEADS for inner, name in _DENSE),
)


def _inverse(pattern: str, ours: str) -> tuple[str, str]:
    """The rule from our names back; outside its one group a pattern has no signs but escaped dots."""
    before, _, rest = pattern.partition("(")
    group, _, after = rest.rpartition(")")
    name = re.escape(ours).replace(r"\\1", f"({group})")
    return name, before.replace(r"\.", ".") + (r"\1" if group else "") + after.replace(r"\.", ".")


_RULES = tuple((re.compile(pattern), ours) for pattern, ours in _PAIRS)
_INVERSE_RULES = tuple((re.compile(name), theirs) for name, theirs in (_inverse(*pair) for pair in _PAIRS))


def rename_published(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under our names; a name the published layout does not have is an error."""
    renamed = {key: our_name(key) for key in state if key not in UNUSED}
    unknown = sorted(key for key, name in renamed.items() if name is None)
    if unknown:
        raise InputError(
            "Expected the names of a checkpoint of LingBot-Map or of the VGGT family, got "
            f"{len(unknown)} others ({', '.join(unknown)}); "
            "check that the file holds this model."
        )
    return {name: state[key] for key, name in renamed.items() if name is not None}


def our_name(key: str) -> str | None:
    """Our name of a published parameter, if the published layout has it."""
    return _first_match(key, _RULES)


def published_name(name: str) -> str | None:
    """The published name of a parameter of ours, if the published layout has it."""
    return _first_match(name, _INVERSE_RULES)


def _first_match(name: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str | None:
    for pattern, other in rules:
        if found := pattern.fullmatch(name):
            return found.expand(other)
    return None


@dataclass(frozen=True, slots=True)
class Family:
    """Files that look alike: some name begins with each of `has`, none with any of `lacks`."""

    title: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    file: str = ""
    """What the file's own name contains."""
    skipped: str | None = None
    """How the names of a part begin that longtake knows and does not load."""
    our_name: Callable[[str], str | None] = our_name
    """Our name of a tensor of such a file; None for one that has no place in the model."""

    def fits(self, names: Collection[str], file: str) -> bool:
        def begins(pattern: str) -> bool:
            return any(re.match(pattern, name) for name in names)

        return self.file in file and all(map(begins, self.has)) and not any(map(begins, self.lacks))

    def skips(self, name: str) -> bool:
        """Whether a tensor belongs to the part that is not loaded."""
        return self.skipped is not None and re.match(self.skipped, name) is not None


_TRUNK = r"aggregator\."
_SCALE = r"aggregator\.scale_token"
_POINTS = r"point_head\."
_TRACKS = r"track_head\."
_STAGE_1 = "LingBot-Map's first training stage, a bidirectional VGGT"

LONGTAKE = Family(
    "longtake's own model",
    has=(r"encoder\.positions", r"tokens\.camera", r"trunk\.frame_blocks\."),
    our_name=lambda name: name,
)
LINGBOT_MAP = Family("LingBot-Map", has=(_TRUNK, _SCALE))
STREAM3R = Family("STream3R", has=(_TRUNK, _POINTS), lacks=(_SCALE, _TRACKS))
VGGT = Family("VGGT", has=(_TRUNK, _TRACKS), lacks=(_SCALE,), skipped=_TRACKS)
STREAMVGGT = replace(VGGT, title="StreamVGGT")
VGGT_OR_STREAMVGGT = replace(VGGT, title="VGGT or StreamVGGT")
"""One set of names for both; only who fetched the file can say which it is."""
UNKNOWN = Family("no model known to longtake", has=())

# The keys of lingbot-map-stage1 were never seen; its card says that it loads into a bidirectional VGGT.
_FAMILIES = (
    Family("a session saved by longtake", has=(r"num_kept$", r"\w+\.num_settled")),
    LONGTAKE,
    LINGBOT_MAP,
    Family(_STAGE_1, has=(_TRUNK,), lacks=(_SCALE,), file="stage1"),
    VGGT_OR_STREAMVGGT,
    STREAM3R,
    Family(_STAGE_1, has=(_TRUNK,), lacks=(_SCALE, _POINTS, _TRACKS)),
    Family(
        "a Qwen model in the layout of transformers", has=(r"model\.(language_model\.)?layers\.|(model\.)?visual\.",)
    ),
)


def recognise(names: Collection[str], file: str) -> Family:
    """The first family that fits the names of the tensors and of the file."""
    return next((family for family in _FAMILIES if family.fits(names, file)), UNKNOWN)

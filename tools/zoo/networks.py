"""Counts the blocks of the networks of A-SRPT (Table I): parameters, work and data between blocks.

All follow from published layer shapes by counting; nothing here is measured. Convolutions count
with their normalisation and activation. `python -m tools.zoo fit` writes the result to
`profiles/networks.toml`, which the planner reads. The rates are those of a V100; the sources are
in `profiles/asrpt.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from dovetail.physics.pipelines.pipelined import Block, Pipelined

FP32_BYTES, FP16_BYTES = 4, 2
DENSE_FP32 = 0.5 * 15.7e12
"""A transformer in FP32: half of the V100's peak (assumed)."""
DENSE_FP16 = 39e12
"""A transformer in FP16: what Megatron-LM reports for one V100 (Shoeybi et al. 2019)."""


class Conv(NamedTuple):
    """A convolution: channels in and out, kernel height and width, side of its square output."""

    channels_in: int
    channels: int
    height: int
    width: int
    side: int


def _block(convs: Sequence[Conv], out_values: float) -> Block:
    """Returns some convolutions as a block; each keeps its output and the normalised one."""
    weights = [c.channels_in * c.channels * c.height * c.width for c in convs]
    return Block(
        parameters=float(sum(weights) + sum(2 * c.channels for c in convs)),
        flops=float(sum(2 * w * c.side**2 for w, c in zip(weights, convs, strict=True))),
        out_values=float(out_values),
        kept_values=float(sum(2 * c.channels * c.side**2 for c in convs)),
        layers=len(convs),
    )


def _dense(inputs: int, outputs: int) -> Block:
    return Block(inputs * outputs + outputs, 2.0 * inputs * outputs, outputs, 2.0 * outputs, 1)


def vgg19() -> tuple[Block, ...]:
    """Returns VGG-19 (Simonyan and Zisserman 2015, configuration E) at 224 x 224."""
    blocks: list[Block] = []
    channels_in, side = 3, 224
    for channels, repeats in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for repeat in range(repeats):
            conv = Conv(channels_in, channels, 3, 3, side)
            # The last of each group is pooled before it is handed on.
            out_side = side // 2 if repeat == repeats - 1 else side
            blocks.append(_block([conv], channels * out_side**2))
            channels_in = channels
        side //= 2
    return (*blocks, _dense(25088, 4096), _dense(4096, 4096), _dense(4096, 1000))


def resnet152() -> tuple[Block, ...]:
    """Returns ResNet-152 (He et al. 2016, table 1) at 224 x 224: a block is a bottleneck."""
    blocks = [_block([Conv(3, 64, 7, 7, 112)], 64 * 56**2)]
    channels_in = 64
    for width, repeats, side in ((64, 3, 56), (128, 8, 28), (256, 36, 14), (512, 3, 7)):
        for repeat in range(repeats):
            # The first of each group halves the side in its second convolution.
            entry = side * 2 if repeat == 0 and width > 64 else side
            convs = [
                Conv(channels_in, width, 1, 1, entry),
                Conv(width, width, 3, 3, side),
                Conv(width, 4 * width, 1, 1, side),
            ]
            if repeat == 0:
                convs.append(Conv(channels_in, 4 * width, 1, 1, side))
            channels_in = 4 * width
            blocks.append(_block(convs, channels_in * side**2))
    return (*blocks, _dense(2048, 1000))


def inception3() -> tuple[Block, ...]:
    """Returns Inception-V3 (Szegedy et al. 2016) at 299 x 299: a block is a module."""
    stem = [Conv(3, 32, 3, 3, 149), Conv(32, 32, 3, 3, 147), Conv(32, 64, 3, 3, 147)]
    late = [Conv(64, 80, 1, 1, 73), Conv(80, 192, 3, 3, 71)]
    blocks = [_block(stem, 64 * 73**2), _block(late, 192 * 35**2)]
    blocks += [_inception_a(cin, pool) for cin, pool in ((192, 32), (256, 64), (288, 64))]
    grid = [
        Conv(288, 384, 3, 3, 17),
        Conv(288, 64, 1, 1, 35),
        Conv(64, 96, 3, 3, 35),
        Conv(96, 96, 3, 3, 17),
    ]
    blocks.append(_block(grid, 768 * 17**2))
    blocks += [_inception_c(middle) for middle in (128, 160, 160, 192)]
    grid = [Conv(768, 192, 1, 1, 17), Conv(192, 320, 3, 3, 8), Conv(768, 192, 1, 1, 17)]
    grid += [Conv(192, 192, 1, 7, 17), Conv(192, 192, 7, 1, 17), Conv(192, 192, 3, 3, 8)]
    blocks.append(_block(grid, 1280 * 8**2))
    blocks += [_inception_e(cin) for cin in (1280, 2048)]
    return (*blocks, _dense(2048, 1000))


def _inception_a(cin: int, pool: int) -> Block:
    convs = [Conv(cin, 64, 1, 1, 35), Conv(cin, 48, 1, 1, 35), Conv(48, 64, 5, 5, 35)]
    convs += [Conv(cin, 64, 1, 1, 35), Conv(64, 96, 3, 3, 35), Conv(96, 96, 3, 3, 35)]
    return _block([*convs, Conv(cin, pool, 1, 1, 35)], (224 + pool) * 35**2)


def _inception_c(middle: int) -> Block:
    cin, side = 768, 17
    convs = [Conv(cin, 192, 1, 1, side), Conv(cin, middle, 1, 1, side)]
    convs += [Conv(middle, middle, 1, 7, side), Conv(middle, 192, 7, 1, side)]
    convs += [Conv(cin, middle, 1, 1, side), Conv(middle, middle, 7, 1, side)]
    convs += [Conv(middle, middle, 1, 7, side), Conv(middle, middle, 7, 1, side)]
    convs += [Conv(middle, 192, 1, 7, side), Conv(cin, 192, 1, 1, side)]
    return _block(convs, cin * side**2)


def _inception_e(cin: int) -> Block:
    side = 8
    convs = [Conv(cin, 320, 1, 1, side), Conv(cin, 384, 1, 1, side)]
    convs += [Conv(384, 384, 1, 3, side), Conv(384, 384, 3, 1, side)]
    convs += [Conv(cin, 448, 1, 1, side), Conv(448, 384, 3, 3, side)]
    convs += [Conv(384, 384, 1, 3, side), Conv(384, 384, 3, 1, side)]
    return _block([*convs, Conv(cin, 192, 1, 1, side)], 2048 * side**2)


class Transformer(NamedTuple):
    """The shape of a transformer. `inner` is the width of all heads together, 0 for `hidden`.

    `decoders` have cross attention (T5). `extra_matrices` counts further hidden x inner matrices
    in each layer. With `head` the last block predicts a token of the vocabulary.
    """

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    vocabulary: int
    tokens: int
    decoders: int = 0
    inner: int = 0
    extra_matrices: int = 0
    head: bool = True
    recomputed: bool = False


LAUNCHED = 6
"""Layers a transformer block launches: queries with keys and values, scores, context, output
and both of the feed-forward part."""


def transformer(shape: Transformer) -> tuple[Block, ...]:
    """Returns the blocks: the embedding, every layer, and the prediction of tokens."""
    tokens, hidden = shape.tokens, shape.hidden
    handed_on = float(tokens * hidden)
    embedding = Block(float(shape.vocabulary * hidden), 0.0, handed_on, handed_on, 1)
    layers = [_layer(shape, 1)] * shape.layers + [_layer(shape, 2)] * shape.decoders
    if not shape.head:
        return (embedding, *layers)
    words = float(shape.vocabulary * hidden)
    return (embedding, *layers, Block(words, 2 * words * tokens, 1.0, handed_on, 1))


def _layer(shape: Transformer, attentions: int) -> Block:
    """Returns a layer with so many attentions; what it keeps is Korthikanti et al. 2022."""
    tokens, hidden = shape.tokens, shape.hidden
    inner = shape.inner or hidden
    matrices = 4 * attentions + shape.extra_matrices
    parameters = matrices * hidden * inner + 2 * hidden * shape.feed_forward
    scores = 4.0 * attentions * tokens * tokens * inner
    # 34 bytes a value and 5 a score at two bytes a number; only the input where recomputed.
    kept = 17.0 * tokens * hidden + 2.5 * shape.heads * tokens**2
    return Block(
        parameters=float(parameters),
        flops=2.0 * parameters * tokens + scores,
        out_values=float(tokens * hidden * attentions),
        kept_values=float(tokens * hidden) if shape.recomputed else kept * attentions,
        layers=LAUNCHED,
    )


def networks() -> tuple[Pipelined, ...]:
    """Returns the networks of Table I with its batches."""
    bert = Transformer(24, 1024, 4096, 16, 30522, tokens=384, head=False)
    # XLNet has a matrix for relative positions in each layer.
    xlnet = bert._replace(vocabulary=32000, extra_matrices=1)
    t5 = Transformer(24, 1024, 65536, 128, 32128, tokens=512, decoders=24, inner=16384)
    return (
        _vision("vgg19", vgg19(), 32, 23.6e12),
        _vision("resnet152", resnet152(), 4, 10.9e12),
        _vision("inception3", inception3(), 32, 8.4e12),
        _tuned("bert-large", bert, 4),
        _tuned("xlnet-large", xlnet, 4),
        _language("t5-11b", t5, 8),
        _language("gpt-6.7b", _gpt(32, 4096, 32), 32),
        _language("gpt-13b", _gpt(40, 5120, 40), 32),
        _language("gpt-175b", _gpt(96, 12288, 96), 16, slices=8),
    )


def _vision(name: str, blocks: tuple[Block, ...], batch: int, flops_per_s: float) -> Pipelined:
    return Pipelined(name, blocks, batch, flops_per_s, FP32_BYTES, state_bytes=12)


def _language(name: str, shape: Transformer, batch: int, *, slices: int = 1) -> Pipelined:
    """Returns a model too large for one GPU: FP16, with the optimizer's state on the host."""
    blocks = transformer(shape._replace(recomputed=True))
    return Pipelined(name, blocks, batch, DENSE_FP16, FP16_BYTES, 4, slices, recomputed=True)


def _tuned(name: str, shape: Transformer, batch: int) -> Pipelined:
    return Pipelined(name, transformer(shape), batch, DENSE_FP32, FP32_BYTES, state_bytes=16)


def _gpt(layers: int, hidden: int, heads: int) -> Transformer:
    return Transformer(layers, hidden, 4 * hidden, heads, 50257, tokens=512)


def dump_networks() -> str:
    """Returns `networks.toml`; equal blocks in a row are one line with their number."""
    lines = ["# Written by `python -m tools.zoo fit`. Of a block: how many in a row, parameters,"]
    lines += ["# operations and values handed on and kept for a sample, layers of kernels."]
    for network in networks():
        lines += ["", "[[network]]"]
        for field in ("name", "batch", "flops_per_s", "number_bytes", "state_bytes", "slices"):
            lines.append(f"{field} = {json.dumps(getattr(network, field))}")
        lines += [f"recomputed = {json.dumps(network.recomputed)}", "blocks = ["]
        for block, equal in groupby(network.blocks):
            lines.append(f"  {json.dumps([len(list(equal)), *map(float, block[:-1]), block[-1]])},")
        lines.append("]")
    return "\n".join(lines) + "\n"

"""The models of A-SRPT (Table I) as a planner sees them: blocks, batch, device and memory.

The mini-batch is of the whole job and is split among the replicas of a stage. Rates are those of
a V100; see `profiles/asrpt.toml` for where each number comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from dovetail.physics.pipelines import blocks
from dovetail.physics.pipelines.blocks import Block, Transformer, transformer

FP32_BYTES, FP16_BYTES = 4, 2
LAUNCH_S = 40e-6
"""To launch the kernels of one layer, forward (assumed: about ten kernels of 4 us)."""
DENSE_FP32 = 0.5 * 15.7e12
"""A transformer in FP32: half of the V100's peak (assumed)."""
DENSE_FP16 = 39e12
"""A transformer in FP16: what Megatron-LM reports for one V100 (Shoeybi et al. 2019)."""
RECOMPUTED_BACKWARD, PLAIN_BACKWARD = 3.0, 2.0
"""A backward pass over a forward pass, with the forward pass again or without."""


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A model that may be cut into stages. `state_bytes` is held on the GPU per parameter."""

    name: str
    blocks: tuple[Block, ...]
    batch: int
    flops_per_s: float
    number_bytes: int
    state_bytes: int
    slices: int = 1
    recomputed: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def parameters(self) -> float:
        """Returns the parameters of the whole model."""
        return sum(block.parameters for block in self.blocks)

    @property
    def backward_factor(self) -> float:
        """Returns the seconds of a backward pass over those of a forward pass."""
        return RECOMPUTED_BACKWARD if self.recomputed else PLAIN_BACKWARD

    @property
    def exchanges_backward(self) -> int:
        """Returns how often slices exchange going back, for each time going forward."""
        return 2 if self.recomputed else 1

    @property
    def launch_s(self) -> float:
        """Returns the part of a forward pass that no batch changes."""
        return LAUNCH_S * sum(block.layers for block in self.blocks)

    @property
    def sample_s(self) -> float:
        """Returns the seconds a forward pass takes for each sample, on one GPU per replica."""
        return sum(block.flops for block in self.blocks) / self.flops_per_s

    @property
    def sample_bytes(self) -> float:
        """Returns what the whole model keeps of one sample for the way back."""
        return self.number_bytes * sum(block.kept_values for block in self.blocks)


def _vision(name: str, made: tuple[Block, ...], batch: int, flops_per_s: float) -> Pipelined:
    return Pipelined(name, made, batch, flops_per_s, FP32_BYTES, state_bytes=12)


def _language(name: str, shape: Transformer, batch: int, *, slices: int = 1) -> Pipelined:
    """Returns a model too large for one GPU: FP16, its optimizer's state on the host."""
    shape = shape._replace(recomputed=True)
    return Pipelined(
        name, transformer(shape), batch, DENSE_FP16, FP16_BYTES, 4, slices, recomputed=True
    )


def _tuned(name: str, shape: Transformer, batch: int) -> Pipelined:
    return Pipelined(name, transformer(shape), batch, DENSE_FP32, FP32_BYTES, state_bytes=16)


def _gpt(layers: int, hidden: int, heads: int) -> Transformer:
    return Transformer(layers, hidden, 4 * hidden, heads, 50257, tokens=512)


@lru_cache(maxsize=1)
def pipelined() -> Mapping[str, Pipelined]:
    """Returns the models by name, batches as in Table I."""
    bert = Transformer(24, 1024, 4096, 16, 30522, tokens=384, head=False)
    # XLNet has a matrix for relative positions in each layer.
    xlnet = bert._replace(vocabulary=32000, extra_matrices=1)
    t5 = Transformer(24, 1024, 65536, 128, 32128, tokens=512, decoders=24, inner=16384)
    known = (
        _vision("vgg19", blocks.vgg19(), 32, 23.6e12),
        _vision("resnet152", blocks.resnet152(), 4, 10.9e12),
        _vision("inception3", blocks.inception3(), 32, 8.4e12),
        _tuned("bert-large", bert, 4),
        _tuned("xlnet-large", xlnet, 4),
        _language("t5-11b", t5, 8),
        _language("gpt-6.7b", _gpt(32, 4096, 32), 32),
        _language("gpt-13b", _gpt(40, 5120, 40), 32),
        _language("gpt-175b", _gpt(96, 12288, 96), 16, slices=8),
    )
    return MappingProxyType({one.name: one for one in known})

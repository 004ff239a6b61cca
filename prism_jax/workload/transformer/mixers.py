"""Tokens that a layer mixes: attention windows and chunks, or a state of fixed size (Mamba-2, gated linear attention). Counts.

Query q of a sequence (0 is the first) meets `q + 1` keys under full causal attention, `min(q + 1, w)` under a sliding window of w
tokens (its own among them), and `q mod c + 1` where the sequence is cut into chunks of c tokens.

A head of a mixer has a state of `state` x `head_dim` numbers that every token decays and adds to. Kernels cut a sequence into
chunks: inside a chunk tokens meet as in attention under a causal mask, between chunks through the state.

| product, per token | FLOPs |
|---|---|
| keys against queries inside a chunk | 2 (chunk / 2) groups state |
| these against values | 2 (chunk / 2) heads head_dim |
| values into the state, the state to the outputs | 4 heads head_dim state |
| gated_linear: corrections by keys among themselves (delta rule) | as the first two once more |

Source: arXiv 2310.06825 section 2 (windows); Llama 4, `attention_chunk_size` (chunks); arXiv 2405.21060, section 6 (Mamba-2,
SSD); 2412.06464 (gated delta networks); parameters as in `mamba_ssm` and as in `Qwen3NextGatedDeltaNet` of Hugging Face
transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.bounds import MOST_TOKENS, MOST_WIDTH, check_bounds, check_count
from ...core.errors import SpecError

FULL, SLIDING, CHUNKED = "full", "sliding", "chunked"
REACHES = (FULL, SLIDING, CHUNKED)


@dataclass(frozen=True)
class WindowSpec:
    """Layers that attend to a part of the sequence only.

    Attributes:
        size: tokens of a window or of a chunk.
        pattern: full | sliding | chunked for layer 0, 1, ...; it repeats down the layers. Gemma 3 has five sliding layers
            before every full one.
    """

    size: int
    pattern: tuple[str, ...] = (SLIDING,)

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise SpecError(f"window: size = {self.size!r}, but it must be a whole number of tokens, at least 1")
        check_bounds(SpecError, "window", MOST_TOKENS, size=self.size)
        if not self.pattern:
            raise SpecError(f"window: pattern is empty. Name {', '.join(REACHES)} for the layers that it repeats over.")
        for reach in self.pattern:
            if reach not in REACHES:
                raise SpecError(f"window: pattern has {reach!r}, which is unknown. Use {', '.join(REACHES)}.")

    def reach(self, layer: int) -> str:
        """Returns the span that layer `layer` attends to: full | sliding | chunked."""
        return self.pattern[layer % len(self.pattern)]


def causal_area(seq_len: int, reach: str, size: int) -> int:
    """Pairs of a query and a key that it sees, over a sequence of `seq_len` tokens."""
    if reach == FULL or size >= seq_len:
        return _triangle(seq_len)
    if reach == SLIDING:
        return _triangle(size) + (seq_len - size) * size
    n_chunk, rest = divmod(seq_len, size)
    return n_chunk * _triangle(size) + _triangle(rest)


def mean_keys(seq_len: int, window: WindowSpec | None, layer: int) -> float:
    """Keys that a query of layer `layer` sees, averaged over a causal sequence of `seq_len` tokens."""
    if window is None:
        return (seq_len + 1) / 2
    return causal_area(seq_len, window.reach(layer), window.size) / seq_len


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


MAMBA2, GATED_LINEAR = "mamba2", "gated_linear"
MIXERS = (MAMBA2, GATED_LINEAR)
MIXER, ATTENTION = "mixer", "attention"
MIXER_ALONE, ATTENTION_ALONE = "mixer_alone", "attention_alone"  # no MLP behind it (Nemotron-H)
PLACES = (MIXER, ATTENTION, MIXER_ALONE, ATTENTION_ALONE)


@dataclass(frozen=True)
class MixerSpec:
    """Layers with a state in place of attention.

    Attributes:
        kind: mamba2 | gated_linear.
        n_heads, head_dim: of the values.
        n_groups: sets of keys and queries, each shared by several heads.
        state: width of a key.
        conv: taps of the causal convolution over what enters.
        chunk: tokens that kernels take at once.
        pattern: mixer | attention | mixer_alone | attention_alone for layer 0, 1, ...; it repeats down the layers. What is
            alone has no MLP behind it.
        has_mlp: layers of this sort have the MLP of the others, too.
    """

    n_heads: int
    head_dim: int
    n_groups: int = 1
    state: int = 128
    kind: str = MAMBA2
    conv: int = 4
    chunk: int = 256
    pattern: tuple[str, ...] = (MIXER,)
    has_mlp: bool = True

    def __post_init__(self) -> None:
        for name in ("n_heads", "head_dim", "n_groups", "state", "conv", "chunk"):
            most = MOST_TOKENS if name == "chunk" else MOST_WIDTH
            check_count(SpecError, "mixer", 1, most, **{name: getattr(self, name)})
        if self.kind not in MIXERS:
            raise SpecError(f"mixer: kind = {self.kind!r} is unknown. Use one of {', '.join(MIXERS)}.")
        if self.n_heads % self.n_groups:
            raise SpecError(f"mixer: n_heads = {self.n_heads} is not a multiple of n_groups = {self.n_groups}.")
        if not self.pattern or any(place not in PLACES for place in self.pattern):
            raise SpecError(
                f"mixer: pattern = {list(self.pattern)}, but it names {' or '.join(PLACES)} for every layer."
            )

    def is_in_layer(self, layer: int) -> bool:
        """Whether layer `layer` mixes through a state."""
        return self.pattern[layer % len(self.pattern)] in (MIXER, MIXER_ALONE)

    def has_mlp_in(self, layer: int) -> bool:
        """Whether layer `layer` has an MLP (or experts) behind its attention or mixer."""
        place = self.pattern[layer % len(self.pattern)]
        return place == ATTENTION or (place == MIXER and self.has_mlp)

    @property
    def width(self) -> int:
        """Width of all values."""
        return self.n_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all keys; queries are as wide."""
        return self.n_groups * self.state

    @property
    def in_width(self) -> int:
        """Columns of the projection that makes values, gates, keys, queries and what decays them."""
        decays = self.n_heads * (1 if self.kind == MAMBA2 else 2)
        return 2 * self.width + 2 * self.key_width + decays

    @property
    def conv_width(self) -> int:
        """Width of the convolution's input: values, keys, queries."""
        return self.width + 2 * self.key_width

    def in_params(self, hidden: int) -> int:
        """Projection, convolution, decays; Mamba-2 has biases in the convolution and a skip per head."""
        own = self.n_heads * 2 + self.conv_width * self.conv
        return hidden * self.in_width + own + (self.conv_width + self.n_heads if self.kind == MAMBA2 else 0)

    def out_params(self, hidden: int) -> int:
        """Projection and the gated norm in front of it; gated linear attention shares the norm's weights among heads."""
        return self.width * hidden + (self.width if self.kind == MAMBA2 else self.head_dim)

    def weights(self, hidden: int) -> int:
        """Matrix entries that a token meets."""
        return hidden * (self.in_width + self.width)

    def scan_flops(self, seq_len: float) -> float:
        """Forward FLOPs of one token between the projections."""
        chunk = min(self.chunk, seq_len)
        inside = chunk * (self.key_width + self.width)
        return inside * (1.0 if self.kind == MAMBA2 else 2.0) + 4.0 * self.width * self.state

"""Which tokens a query attends to: all before it, a sliding window, or its own chunk; and the area of the scores. Counts.

Query q of a sequence (0 is the first) meets `q + 1` keys under full causal attention, `min(q + 1, w)` under a sliding window of w
tokens (its own among them), and `q mod c + 1` where the sequence is cut into chunks of c tokens.

Source: arXiv 2310.06825 section 2 (sliding windows); Llama 4, `attention_chunk_size` of its Hugging Face config (chunks).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...bounds import MOST_TOKENS, check_bounds
from ...errors import SpecError

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
        """What layer `layer` attends to: full | sliding | chunked."""
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

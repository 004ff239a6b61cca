"""Recommendation models by name, and what the fields are that only they have."""

from __future__ import annotations

from .reuse import Reuse, Uniform, Zipf
from .sizes import CrossSpec
from .spec import DLRMSpec
from .table import EmbeddingTable

# Rows of the 26 categorical features of Criteo 1TB, capped at 40 million (mlcommons/training, recommendation_v2/torchrec_dlrm).
CRITEO_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10,
    2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
# Lookups of a sample in the multi-hot variant (the same, `multi_hot_sizes`).
CRITEO_HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
DIM = 128
# One row in a hundred serves 92 % of the lookups (arXiv 2202.12429), which is what this exponent gives of 40 million rows.
# The lookups that the multi-hot variant adds are drawn evenly.
CRITEO_REUSE = Zipf(1.15)


def _tables(pooling: tuple[int, ...], reuse: Reuse) -> tuple[EmbeddingTable, ...]:
    rows_of = enumerate(zip(CRITEO_ROWS, pooling, strict=True))
    return tuple(EmbeddingTable(f"t{number}", rows, DIM, float(hot), reuse=reuse) for number, (rows, hot) in rows_of)


PRESETS = (
    DLRMSpec(
        "dlrm-criteo1tb",
        13,
        (512, 256, 128),
        _tables((1,) * len(CRITEO_ROWS), CRITEO_REUSE),
        (1024, 1024, 512, 256, 1),
        source="MLPerf Training v0.7 to v2.1, DLRM: mlcommons/training, recommendation/dlrm; Criteo 1TB",
    ),
    DLRMSpec(
        "dlrm-dcnv2",
        13,
        (512, 256, 128),
        _tables(CRITEO_HOT, Uniform()),
        (1024, 1024, 512, 256, 1),
        "dcn",
        CrossSpec(3, 512),
        "adagrad",
        source="MLPerf Training v3.0 to v4.1, DLRM-DCNv2: mlcommons/training, recommendation_v2/torchrec_dlrm",
    ),
)
WORDS = {
    "n_dense": "dense features of a sample",
    "bottom": "widths of the layers over the dense features",
    "tables": "embedding tables",
    "tables.name": "of the table, as in `plan.tables`",
    "tables.rows": "vectors",
    "tables.dim": "elements of a vector",
    "tables.pooling": "mean lookups of a sample; their vectors are summed",
    "tables.element_bytes": "of a stored element",
    "tables.reuse": "how lookups repeat: `uniform`, `zipf(a)`, or shares of lookups by how often their row is read (17 bins)",
    "top": "widths of the layers over the interaction",
    "interaction": "of the vectors: products of all pairs, all of them, or all through a cross network",
    "dcn": "cross network of interaction dcn",
    "dcn.layers": "cross layers",
    "dcn.rank": "of a cross layer's matrix; 0: full",
    "optimizer": "of the tables; dense layers have Adagrad where it is not sgd",
    "prefetch": "inputs are copied to the device while the step before runs; false: in front of the step",
}

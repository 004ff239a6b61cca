"""Recommendation models (DLRM): embedding tables, dense layers, their interaction; see docs/design.md."""

from .exchange import SizeRule as SizeRule, exchange_bytes as exchange_bytes
from .reuse import Histogram as Histogram, Reuse as Reuse, Uniform as Uniform, Zipf as Zipf
from .seconds import TableSeconds as TableSeconds
from .sizes import CrossSpec as CrossSpec
from .table import EmbeddingTable as EmbeddingTable

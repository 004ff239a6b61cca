"""Architecture: how the configurations of one `model_type` are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..transformer.spec import TransformerSpec
from .fields import Fields


class Architecture(NamedTuple):
    """One `model_type`.

    Attributes:
        name: the `model_type`.
        read: keys of a configuration -> fields of its `spec`.
        spec: what it describes: a decoder, or another kind of model.
    """

    name: str
    read: Callable[[Fields], dict[str, Any]]
    spec: type = TransformerSpec

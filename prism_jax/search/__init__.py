"""Search: plans, and placements of measured nodes, that minimise the tail of the step time.

Names are imported when they are used: a space of plans is read without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ask_tell import AskTell as AskTell
    from .exhaustive import search as search
    from .gradient import gap as gap, gradient_search as gradient_search
    from .sizes import best_sizes as best_sizes, search_sizes as search_sizes
    from .space import PlanSpace as PlanSpace, default_space as default_space
    from .study import Study as Study

_HOME = {
    "AskTell": "ask_tell",
    "PlanSpace": "space",
    "Study": "study",
    "default_space": "space",
    "gap": "gradient",
    "gradient_search": "gradient",
    "best_sizes": "sizes",
    "search": "exhaustive",
    "search_sizes": "sizes",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)

"""Search: plans, and placements of measured nodes, that minimise the tail of the step time.

Names are imported when they are used: a space of plans is read without JAX.
"""

from typing import TYPE_CHECKING

from .._core.lazy import lazy_names

if TYPE_CHECKING:
    from .ask_tell import AskTell as AskTell
    from .exhaustive import search as search
    from .gradient.search import gap as gap, gradient_search as gradient_search
    from .plans.space import PlanSpace as PlanSpace, default_space as default_space
    from .sizes import best_sizes as best_sizes, search_sizes as search_sizes
    from .study import Study as Study

_HOME = {
    "AskTell": "ask_tell",
    "PlanSpace": "plans.space",
    "Study": "study",
    "best_sizes": "sizes",
    "default_space": "plans.space",
    "gap": "gradient.search",
    "gradient_search": "gradient.search",
    "search": "exhaustive",
    "search_sizes": "sizes",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)

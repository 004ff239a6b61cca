"""Known software that is none of the others, such as code of a company's own; and software that is not known at all."""

from __future__ import annotations

from .base import Framework
from .recognition import by_name

OTHER = Framework(
    "other",
    "known, none of the others",
    patterns=by_name(
        r"llama 3 herd|2407\.21783|deepseek-ai|fire-?flyer|hai-?llm|megascale|veomni|internevo|internlm|xtuner", 70
    ),
)

UNKNOWN = Framework("", "not stated: the population's average")

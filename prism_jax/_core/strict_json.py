"""JSON as it was meant: every key of an object once, and whatever is wrong is one kind of error that names the place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..errors import DataError


def parse_json(text: str, name: str) -> Any:
    """The value that a text in JSON describes.

    Args:
        text: at hand as a whole; what is made of it takes up to 30 bytes of memory per character.
        name: what messages call the text.

    Raises:
        DataError: not JSON, nested too deeply, a number of thousands of digits, or an object with the same key twice.
    """

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            again = next(key for key, n in counts.items() if n > 1)
            raise DataError(f"{name}: the key {again[:60]!r} is there twice in one object. Keep one.")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise DataError(f"{name}:{error.lineno}:{error.colno} is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # absurd numbers, absurd nesting
        raise DataError(f"{name} is not JSON: {error}") from None

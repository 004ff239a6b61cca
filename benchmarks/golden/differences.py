"""Where two transcripts differ: exactly, or in more than the rounding of numbers."""

from __future__ import annotations

import re
from difflib import unified_diff

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
SHOWN_LINES = 12
NOISE = 1e-9  # below this a number is zero


def differing_lines(old: str, new: str, tolerance: float = 0.0) -> list[str]:
    """Returns the first lines of a difference, none where there is none.

    Args:
        old, new: transcripts.
        tolerance: relative difference of numbers that does not count; 0: every character counts. With a tolerance, neither does
            the last printed digit of a number with a decimal point, nor the width of gaps between words.
    """
    if old == new:
        return []
    before, after = old.splitlines(), new.splitlines()
    if tolerance:
        if len(before) == len(after):
            after = [one if _close(one, two, tolerance) else two for one, two in zip(before, after, strict=True)]
        if before == after:
            return []
    changed = list(unified_diff(before, after, "old", "new", n=0, lineterm=""))[2:]
    return changed[:SHOWN_LINES] + (
        [f"... {len(changed) - SHOWN_LINES} more lines"] if len(changed) > SHOWN_LINES else []
    )


def _close(old: str, new: str, tolerance: float) -> bool:
    words = [" ".join(re.sub("[─-]{3,}", "---", NUMBER.sub("0", text)).split()) for text in (old, new)]
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=False)
    return words[0] == words[1] and all(_same_number(one, two, tolerance) for one, two in pairs)


def _same_number(old: str, new: str, tolerance: float) -> bool:
    if old == new:
        return True
    a, b = (float(text.replace(",", "")) for text in (old, new))
    allowed = tolerance * max(abs(a), abs(b))
    if "." in old or "." in new or max(abs(a), abs(b)) >= 1000.0:  # a figure, not a count
        allowed = max(allowed, NOISE, 1.01 * max(_last_digit(old), _last_digit(new)))
    return abs(a - b) <= allowed


def _last_digit(text: str) -> float:
    """What one step of the last digit is worth."""
    digits, _, exponent = text.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))

"""Times as tables spell them: numbers, times of day, durations."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from .csv_rows import number_of

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 1.0),
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    **dict.fromkeys(("min", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hours"), 3600.0),
    **dict.fromkeys(("d", "days"), 86_400.0),
}
_CLOCK = re.compile(r"(?:(\d{1,5})(?:-| days?,? ))?(\d{1,6}):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?")
_SLASHES = re.compile(r"(\d{4})/(\d\d?)/(\d\d?)")
LONGEST = 60


def seconds_of_text(text: str) -> float:
    """Seconds that a text spells; NaN where it spells none.

    A number is seconds; "2020-04-01 00:00:10" and ISO 8601 are seconds since 1970 (UTC where no zone is said); "01:02:03",
    "1-02:03:04" and "1 day, 02:03:04" are durations, "02:03" minutes and seconds.
    """
    text = text.strip()
    number = number_of(text)
    if not math.isnan(number) or len(text) > LONGEST:
        return number
    duration = _CLOCK.fullmatch(text)
    if duration is not None:
        days, first, second, third = duration.groups()
        parts = (first, second, third) if third is not None else ("0", first, second)
        hours, minutes, seconds = map(float, parts)
        return 86_400.0 * float(days or 0) + 3600.0 * hours + 60.0 * minutes + seconds
    try:
        found = datetime.fromisoformat(_SLASHES.sub(lambda d: f"{d[1]}-{int(d[2]):02d}-{int(d[3]):02d}", text))
    except ValueError:
        return math.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()

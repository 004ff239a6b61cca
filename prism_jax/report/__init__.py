"""Reports: typed answers of use cases, and their text, JSON and HTML. Prints nothing.

Names are imported when they are used, so that a command pays for its own report only.
"""

from typing import TYPE_CHECKING

from .._core.lazy import lazy_names

if TYPE_CHECKING:
    from .report import Report as Report
    from .types.captured.execution import ExecutionTraceReport as ExecutionTraceReport
    from .types.catalogue import CatalogueReport as CatalogueReport, EntryReport as EntryReport
    from .types.check import CheckReport as CheckReport
    from .types.fit import FitReport as FitReport, KeptFitReport as KeptFitReport
    from .types.horizon.queue import QueueReport as QueueReport
    from .types.horizon.run import RunReport as RunReport
    from .types.horizon.watch import WatchReport as WatchReport
    from .types.host import HostReport as HostReport
    from .types.placing.placement import PlacementReport as PlacementReport
    from .types.placing.sharding import ShardingReport as ShardingReport
    from .types.prediction import PredictionReport as PredictionReport
    from .types.site import SiteReport as SiteReport, SuggestionReport as SuggestionReport
    from .types.study import SizesReport as SizesReport, StudyReport as StudyReport
    from .types.trace import TraceInfoReport as TraceInfoReport, TraceReplayReport as TraceReplayReport
    from .types.trace_prediction import TracePredictionReport as TracePredictionReport, WhatIfReport as WhatIfReport
    from .types.validation import (
        MemoryValidationReport as MemoryValidationReport,
        StepsValidationReport as StepsValidationReport,
    )

_HOME = {
    "CatalogueReport": "types.catalogue",
    "CheckReport": "types.check",
    "EntryReport": "types.catalogue",
    "ExecutionTraceReport": "types.captured.execution",
    "FitReport": "types.fit",
    "HostReport": "types.host",
    "KeptFitReport": "types.fit",
    "MemoryValidationReport": "types.validation",
    "PlacementReport": "types.placing.placement",
    "PredictionReport": "types.prediction",
    "QueueReport": "types.horizon.queue",
    "RunReport": "types.horizon.run",
    "ShardingReport": "types.placing.sharding",
    "SiteReport": "types.site",
    "SizesReport": "types.study",
    "StepsValidationReport": "types.validation",
    "StudyReport": "types.study",
    "SuggestionReport": "types.site",
    "TraceInfoReport": "types.trace",
    "TracePredictionReport": "types.trace",
    "TraceReplayReport": "types.trace",
    "WatchReport": "types.horizon.watch",
    "WhatIfReport": "types.trace",
    "Report": "report",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)

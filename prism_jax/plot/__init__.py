"""Pictures of predictions. Takes results and draws them; computes, shows and writes nothing."""

from .accuracy import plot_accuracy as plot_accuracy
from .bandwidth import plot_bandwidth as plot_bandwidth, plot_bandwidths as plot_bandwidths
from .bars import plot_breakdown as plot_breakdown, plot_owners as plot_owners
from .figure import figure_bytes as figure_bytes
from .fit import plot_fit as plot_fit
from .placing.placement import plot_placement as plot_placement
from .placing.sharding import plot_sharding as plot_sharding
from .prediction import plot_prediction as plot_prediction
from .run import plot_run as plot_run, plot_unknown_run as plot_unknown_run
from .step_time import plot_step_time as plot_step_time
from .studies.comparison import plot_comparison as plot_comparison
from .studies.scaling import plot_scaling as plot_scaling
from .studies.sweep import plot_sweep as plot_sweep
from .study import plot_study as plot_study
from .style import style as style
from .trace.slow_phases import plot_slow_phases as plot_slow_phases
from .trace.workers import plot_workers as plot_workers
from .trace_prediction import plot_trace_prediction as plot_trace_prediction

"""Pictures of recorded jobs show the numbers they are given, legibly, for jobs of any shape."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from prism_jax.core.picture import figure_bytes
from prism_jax.recorded.picture import plot_trace_prediction, plot_workers
from prism_jax.recorded.prediction import TracePrediction
from prism_jax.recorded.prediction_report import PredictedCurves

DIGITS = 1e-6  # relative, of times in a picture
RNG = np.random.default_rng(0)
NORMAL = TracePrediction(RNG.normal(2.0, 0.1, (40, 100)))
RECORDED_S = RNG.normal(2.0, 0.1, 30)
HELD_OUT = TracePrediction(RNG.normal(2.1, 0.2, (40, 100))), RNG.normal(2.0, 0.1, 15)


ALONE, BOTH = PredictedCurves.of(NORMAL, RECORDED_S, None), PredictedCurves.of(NORMAL, RECORDED_S, HELD_OUT)


def slowdowns(n_replica: int, n_stage: int) -> np.ndarray:
    return 1.0 + np.random.default_rng(1).gamma(1.0, 0.02, (n_replica, n_stage))


def ranks(n_replica: int, n_stage: int) -> np.ndarray:
    """[replica, stage] global ranks, two GPUs per worker."""
    return 2 * (np.arange(n_stage) * n_replica + np.arange(n_replica)[:, None])


def rendered(figure: Figure) -> Figure:
    assert figure_bytes(figure, ".png").startswith(b"\x89PNG")
    return figure


def points(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_xydata())


def line(ax: Axes, label: str) -> np.ndarray:
    """[point, 2] of the line whose label starts so."""
    return next(points(found) for found in ax.lines if str(found.get_label()).startswith(label))


def labels(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def check_texts_are_inside(figure: Figure) -> None:
    """Titles, labels and legends lie within the picture."""
    for ax in figure.axes:
        legend = ax.get_legend()
        boxes = [text.get_window_extent() for text in (ax.title, ax.xaxis.label, ax.yaxis.label) if text.get_text()]
        for box in [*boxes, *([legend.get_window_extent()] if legend else [])]:
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= figure.bbox.y1


# --- Predicted and measured steps ------------------------------------------------------------------------------------


def test_one_panel_or_two_with_axes_that_say_what_they_are() -> None:
    alone = rendered(plot_trace_prediction(ALONE, "SE: unrecorded steps"))
    both = rendered(plot_trace_prediction(BOTH, "SE: unrecorded steps"))
    assert (len(alone.axes), len(both.axes)) == (1, 2)
    assert both.get_suptitle() == "SE: unrecorded steps"
    assert [ax.get_title() for ax in both.axes] == ["", ""]  # titles stand on the left
    assert [ax.get_title(loc="left") for ax in both.axes] == [
        "All recorded steps fitted",
        "Check: steps that were not fitted",
    ]
    for ax in both.axes:
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("step time (s)", "steps that take at most this long")
    assert both.axes[0].get_xlim() == both.axes[1].get_xlim()
    for figure in (alone, both):
        check_texts_are_inside(figure)


def test_another_job_is_named_and_not_drawn_over_the_recorded_one() -> None:
    first, second = plot_trace_prediction(BOTH, "a", "16 replicas").axes
    assert first.get_title(loc="left") == "Predicted job: 16 replicas"
    assert not any("recorded" in label for label in labels(first))
    assert second.get_title(loc="left") == "Check on the recorded job: steps that were not fitted"
    assert "15 steps held out" in labels(second)


def test_legend_tells_quantiles_and_what_was_measured() -> None:
    first, second = plot_trace_prediction(BOTH, "a").axes
    quantiles = [f"p{100 * p:g}  {NORMAL.quantile(p):#.4g} s" for p in (0.5, 0.95, 0.99)]
    assert labels(first) == ["90% interval, long run", "predicted", *quantiles, "30 steps recorded"]
    assert labels(second)[0] == "90% of samples of 15 steps"
    assert labels(second)[-1] == "15 steps held out"


def test_curve_and_marks_are_the_quantiles_of_the_prediction() -> None:
    (ax,) = plot_trace_prediction(ALONE, "a").axes
    times, shares = line(ax, "predicted").T
    np.testing.assert_allclose(times, [NORMAL.quantile(p) for p in shares], rtol=DIGITS)
    for p in (0.5, 0.95, 0.99):
        np.testing.assert_allclose(line(ax, f"p{100 * p:g}"), [[NORMAL.quantile(p), p]])


def test_measured_steps_are_their_own_distribution_function() -> None:
    (ax,) = plot_trace_prediction(ALONE, "a").axes
    times, shares = line(ax, "30 steps").T
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(times, [RECORDED_S.min(), *np.sort(RECORDED_S)], rtol=DIGITS)
    assert (np.diff(shares) > 0).all()


def band(ax: Axes, level: float) -> tuple[float, float]:
    """Ends of the band at a share of the steps."""
    vertices = np.asarray(ax.collections[0].get_paths()[0].vertices)
    x = vertices[np.abs(vertices[:, 1] - level) < 1e-9, 0]
    return float(x.min()), float(x.max())


def test_band_on_the_left_is_the_interval_of_the_long_run() -> None:
    (ax,) = plot_trace_prediction(ALONE, "a").axes
    np.testing.assert_allclose(band(ax, 0.95), NORMAL.interval(0.95), rtol=DIGITS)


def test_band_of_the_check_is_that_of_so_many_steps() -> None:
    """A sample of 15 steps scatters more than the long run."""
    ax = plot_trace_prediction(BOTH, "a").axes[1]
    np.testing.assert_allclose(band(ax, 0.95), HELD_OUT[0].expected_interval(0.95, 15), rtol=DIGITS)
    low, high = HELD_OUT[0].interval(0.95)
    assert np.ptp(band(ax, 0.95)) > 2 * (high - low)


@pytest.mark.parametrize("n_step", [1, 2, 100, 5000])
def test_any_number_of_steps_can_be_drawn(n_step: int) -> None:
    steps_s = RNG.normal(2.0, 0.1, n_step)
    figure = rendered(plot_trace_prediction(PredictedCurves.of(NORMAL, steps_s, (NORMAL, steps_s)), "a"))
    check_texts_are_inside(figure)
    assert labels(figure.axes[0])[-1] == ("1 step recorded" if n_step == 1 else f"{n_step:,} steps recorded")


def test_steps_of_one_length_can_be_drawn() -> None:
    same = TracePrediction(np.full((40, 2), 3.0))
    rendered(plot_trace_prediction(PredictedCurves.of(same, np.full(9, 3.0), (same, np.full(9, 3.0))), "a"))


# --- Workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_replica", "n_stage"), [(1, 1), (1, 16), (2, 4), (32, 2), (500, 1), (40, 64)])
def test_workers_of_jobs_of_any_shape(n_replica: int, n_stage: int) -> None:
    found = slowdowns(n_replica, n_stage)
    figure = rendered(plot_workers(found, [(0, 0)], ranks(n_replica, n_stage), "a job"))
    ax = figure.axes[0]
    check_texts_are_inside(figure)
    np.testing.assert_array_equal(ax.images[0].get_array(), found.T)
    assert len(ax.texts) == (n_replica * n_stage if n_replica * n_stage <= 96 else 0)
    for ticks in (ax.get_xticks(), ax.get_yticks()):
        assert np.array_equal(ticks, np.round(ticks))
    assert (figure.get_size_inches() <= (13.0, 12.0)).all()
    assert figure.axes[1].get_ylabel() == "slowdown"


def test_cells_carry_global_ranks_and_boxes_mark_the_worst() -> None:
    worst = [(3, 1), (0, 0)]
    ax = plot_workers(slowdowns(4, 2), worst, ranks(4, 2), "SE").axes[0]
    written = {tuple(map(int, text.get_position())): text.get_text() for text in ax.texts}
    assert written == {(replica, stage): str(ranks(4, 2)[replica, stage]) for replica in range(4) for stage in range(2)}
    boxes = {patch.get_xy() for patch in ax.patches if isinstance(patch, Rectangle)}
    assert boxes == {(replica - 0.5, stage - 0.5) for replica, stage in worst}
    assert ax.get_title(loc="left") == "SE; worst ranks 14, 0"
    assert ax.get_ylabel() == "stage"
    assert ax.get_xlabel().startswith("data-parallel rank")


def test_many_worst_workers_are_not_all_named() -> None:
    worst = [(replica, 0) for replica in range(9)]
    title = plot_workers(slowdowns(300, 1), worst, ranks(300, 1), "SE").axes[0].get_title(loc="left")
    assert title.endswith("worst ranks 0, 2, 4, 6, 8, 10, ...")


def test_workers_of_which_none_slows_the_job_can_be_drawn() -> None:
    rendered(plot_workers(np.ones((3, 2)), [(0, 0)], ranks(3, 2), "a job"))


def brightness(rgb: np.ndarray) -> float:
    """Relative luminance as WCAG 2 defines it, 0-1."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def test_numbers_can_be_read_on_dark_and_light_cells() -> None:
    """Contrast of 3 to 1 at least, what WCAG 2 asks of large text and graphics."""
    found = slowdowns(12, 8)
    ax = plot_workers(found, [(0, 0)], ranks(12, 8), "a job").axes[0]
    image = ax.images[0]
    for text in ax.texts:
        replica, stage = map(int, text.get_position())
        cell = np.asarray(image.cmap(image.norm(found[replica : replica + 1, stage])))[0, :3]
        light, dark = sorted([brightness(cell), brightness(np.array(to_rgb(text.get_color())))], reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 3.0


def test_global_settings_and_open_figures_stay_as_they_were() -> None:
    from matplotlib import pyplot

    before = dict(mpl.rcParams)
    plot_trace_prediction(BOTH, "a")
    plot_workers(slowdowns(4, 2), [(0, 0)], ranks(4, 2), "a job")
    assert dict(mpl.rcParams) == before
    assert pyplot.get_fignums() == []

"""Pictures show the numbers they are given, legibly, and leave no trace in global state."""

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from prism_jax.core.errors import DataError
from prism_jax.core.picture import colour, figure_bytes, style
from prism_jax.explain.picture import plot_breakdown, plot_owners
from prism_jax.explain.types import Explanation
from prism_jax.prediction.picture import plot_prediction
from prism_jax.result.picture import plot_step_time
from prism_jax.result.spread import AllocationSpread
from tests.support.synthetic import EXPLANATION, distribution

KINDS = ("usual", "constant", "narrow", "skewed", "long_tailed", "noisy")
SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def rendered(figure: Figure) -> Figure:
    figure_bytes(figure, ".png")
    return figure


def points(line: Line2D) -> np.ndarray:
    """[point, 2] what a line goes through."""
    return np.asarray(line.get_xydata())


def curve_of(ax: Axes) -> np.ndarray:
    """The line with most points."""
    return max(map(points, ax.lines), key=len)


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip():
            yield text.get_text(), text.get_window_extent()


@pytest.mark.parametrize("interval_s", [None, (5.0, 8.6)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_cut_off_or_lies_on_another(kind: str, interval_s: tuple[float, float] | None):
    figure = rendered(
        plot_prediction(distribution(kind), EXPLANATION, "llama3_405b_16384: 16,384 x h100-sxm", interval_s)
    )
    boxes = [(text, box) for text, box in texts(figure) if inside_ticks(figure, box, text)]
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for i, (text, box) in enumerate(boxes):
        for other, other_box in boxes[:i]:
            assert not shrunk(box).overlaps(shrunk(other_box)), (text, other)


def inside_ticks(figure: Figure, box: Bbox, text: str) -> bool:
    """Leaves out tick labels beyond the limits of their axes, which matplotlib keeps but does not draw."""
    for ax in figure.axes:
        low, high = sorted(ax.get_xlim())
        for tick in ax.xaxis.get_major_ticks():
            if tick.label1.get_window_extent().bounds == box.bounds and not low <= tick.get_loc() <= high:
                return False
        low, high = sorted(ax.get_ylim())
        for tick in ax.yaxis.get_major_ticks():
            if tick.label1.get_window_extent().bounds == box.bounds and not low <= tick.get_loc() <= high:
                return False
    return True


def shrunk(box: Bbox) -> Bbox:
    """Boxes that only touch do not overlap."""
    return box.padded(-1.0)


def test_the_interval_of_the_model_is_drawn_to_scale_around_the_steps():
    made = distribution()
    figure = plot_prediction(made, EXPLANATION, "a job", (5.0, 8.6))
    model, steps = figure.axes[-1].patches
    assert (model.get_x(), model.get_width()) == (5.0, pytest.approx(3.6))  # pyright: ignore[reportAttributeAccessIssue]
    assert steps.get_x() == pytest.approx(made.quantile(0.05), rel=1e-4)  # pyright: ignore[reportAttributeAccessIssue]
    assert figure.axes[0].get_title(loc="left") == "Step time if the cost model is exact"


@pytest.mark.parametrize("kind", KINDS)
def test_the_legend_leaves_the_curve_free(kind: str):
    ax = plot_prediction(distribution(kind), EXPLANATION, "a job", (5.0, 8.6)).axes[0]
    rendered(ax.figure)  # pyright: ignore[reportArgumentType]
    legend = ax.get_legend()
    assert legend is not None
    assert not legend.get_window_extent().padded(-3.0).count_contains(ax.transData.transform(curve_of(ax)))


def test_the_curve_is_the_empirical_distribution():
    made = distribution()
    times, shares = curve_of(plot_step_time(made)).T
    np.testing.assert_allclose(times, np.quantile(made.samples_s, shares, method="hazen"))


def test_quantiles_and_the_step_without_variability_are_marked():
    made = distribution()
    lines = {line.get_label(): points(line) for line in plot_step_time(made).lines}
    for p in (0.5, 0.95, 0.99):
        found = next(data for label, data in lines.items() if str(label).startswith(f"p{100 * p:g}"))
        np.testing.assert_allclose(found, [[made.quantile(p), p]])
    assert lines["without variability 6.3 s"][0][0] == 6.3


def test_the_band_is_two_standard_errors_wide_on_each_side():
    made = distribution("noisy")
    band = plot_step_time(made).collections[0].get_paths()[0].vertices
    at_p95 = np.asarray(band)[np.abs(np.asarray(band)[:, 1] - 0.95) < 2e-3, 0]
    assert np.ptp(at_p95) == pytest.approx(4 * made.mc_error(0.95), rel=0.05)


def test_bars_are_sorted_and_carry_seconds_and_shares():
    ax = plot_breakdown(EXPLANATION)
    widths = [bar.get_width() for bar in ax.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert widths == sorted(widths)
    assert widths[-1] == 4.9
    assert ax.texts[-1].get_text() == "4.90 s  75.4%"
    assert "cp communication" not in [label.get_text() for label in ax.get_yticklabels()]


def test_a_kind_of_work_has_one_colour_in_every_picture():
    compute = plot_breakdown(EXPLANATION).patches[-1]
    gpus = plot_owners(EXPLANATION).patches[-1]
    assert to_hex(compute.get_facecolor()) == to_hex(gpus.get_facecolor()) == colour("gemm").lower()


def test_nothing_varies_is_said_instead_of_drawn():
    quiet = Explanation({"compute": 1.0}, {}, {}, AllocationSpread(0.0, 0.0, 0.0, 1.0, 0.0))
    assert plot_owners(quiet).get_xlabel() == "nothing varies"


@pytest.mark.parametrize(("suffix", "signature"), SIGNATURES.items())
def test_figures_become_bytes_of_the_format_of_the_name(suffix: str, signature: bytes):
    with style():
        figure, again = (plot_step_time(distribution()).figure for _ in range(2))
    assert isinstance(figure, Figure)
    assert isinstance(again, Figure)
    data = figure_bytes(figure, suffix)
    assert data.startswith(signature)
    assert data == figure_bytes(again, suffix)


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"\.docx.*\.png"):
        figure_bytes(Figure(), ".docx")


def test_global_settings_and_open_figures_stay_as_they_were():
    from matplotlib import pyplot

    before = dict(mpl.rcParams)
    plot_prediction(distribution(), EXPLANATION, "a job")
    assert dict(mpl.rcParams) == before
    assert pyplot.get_fignums() == []

"""Saved reports next to each other: in what they differ, which is better and how sure that is, their figures and their cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from string import ascii_uppercase
from typing import Any
from urllib.parse import urlencode

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import DataError, PrismError
from ..core.page import Block, Facts, Group, Note, Table, cell
from ..core.page_html import block_html
from ..core.readable import percent, prob, time_to, time_with_error, with_error
from ..core.report import Report
from ..core.units import format_bytes
from ..job.load_job import SHORTHAND, job_of
from ..prediction.report import PredictionReport
from ..study.compare_predictions import ComparedQuantile, compared_predictions
from ..study.report import probability_table
from .layout import as_shown, choice, document, heading, left_out, link, trusted
from .report_job import as_document, job_of_report, of_reports, record_of, report_in
from .results import inputs_of
from .site import Site, address, html, site_of

MOST = 8  # reports on one screen
MOST_KEYS = 400  # of a table of keys that differ
MOST_LISTED = 200  # reports to choose from
LONGEST_LIST = 8  # numbers of a list that are compared one by one
UNSTATED = "not stated"
NAMING = ("job", "jobs", "set", "file")  # inputs that say what a report is of
NO_KEYS = ("schema", "record", "elapsed_s", "versions", "inputs", "command", "git_revision", "seed")


@of_reports
def show_comparison(request: Request) -> Response:
    """The screen; with less than two reports, a choice of them.

    Raises:
        DataError: one is no report, or they are too many.
    """
    site = site_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("file")))
    if len(names) > MOST:
        raise DataError(f"{len(names)} reports: at most {MOST} are compared on one screen. Choose fewer.")
    for name in names:
        site.existing(name)
    if len(names) < 2:
        return html(_choice(site, names))
    title = f"{' and '.join(names) if len(names) == 2 else f'{len(names)} reports'} compared"
    return html(document(title, heading(title), site.results.kept("compare", names, lambda: _body(site, names))))


def _choice(site: Site, names: Sequence[str]) -> h.Element:
    """Two lists to choose from, the first with the report that was asked for."""
    found = [one for one in site.results.reports() if not one.problem]
    reports = found[:MOST_LISTED]
    more = f"The latest {len(reports)} of {len(found):,} are listed. Choose others in the folder."
    if len(reports) < 2:
        return document("Compare", heading("Compare reports"), h.p["There are less than two reports in this folder."])

    options = {one.file.name: f"{one.file.name}: {one.kind} {one.job}" for one in reports}
    first = names[0] if names else reports[0].file.name
    second = next(name for name in options if name != first)
    return document(
        "Compare",
        heading("Compare reports"),
        h.form(action="/compare", method="get")[
            choice("Report A", "file", options, first, place="report-0"),
            choice("Report B", "file", options, second, place="report-1"),
            h.div(".actions")[h.button(type="submit")["Compare"]],
        ],
        left_out(more if len(found) > len(reports) else "", site.results.beyond),
    )


def _body(site: Site, names: Sequence[str]) -> h.Node:
    """Everything below the heading, written once."""
    reports = [report_in(site, name) for name in names]
    labels = ascii_uppercase[: len(names)]
    kinds = {one.kind for one in reports}
    legend = Facts("", {label: _about(name, one) for label, name, one in zip(labels, names, reports, strict=True)})
    blocks: list[Block] = [legend, *_differences(labels, [record_of(one) for one in reports])]
    if len(kinds) > 1:
        text = f"These are reports of different kinds ({', '.join(sorted(kinds))}): no figures are compared."
        blocks.append(Note(text))
    elif isinstance(reports[0], PredictionReport):
        blocks += _compared(site, labels, reports)
    keys = _keys(labels, reports) if len(kinds) == 1 else None
    cards = (h.article(".card")[block_html(_card(label, one), 2)] for label, one in zip(labels, reports, strict=True))
    links = (link(f"Open {label}", address("/answer", file=name)) for label, name in zip(labels, names, strict=True))
    shown = [
        [block_html(one, 2) for one in blocks],
        h.div(".actions")[_run_both(site, reports), links],
        h.section(".two", aria_label="Reports")[cards],
        None if keys is None else h.details[h.summary["All figures that differ"], block_html(keys, 2)],
    ]
    return trusted(str(h.fragment[shown]))


def _about(name: str, report: Report) -> str:
    card = report.card()
    return f"{name}: {report.kind}{f' of {card.title}' if card else ''}"


def _card(label: str, report: Report) -> Block:
    card = report.card()
    if card is None:
        return Facts(f"{label}: {report.kind}", {})
    return replace(as_shown(card).as_group(), title=f"{label}: {card.title}")


def _differences(labels: str, records: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Tables of the fields of the jobs, and of the options of the commands, in which reports differ."""
    stated = [record.get("job_file") for record in records]
    if all(isinstance(one, str) for one in stated):
        found = _unlike(labels, [_flat_job(str(one)) for one in stated], "field")
        yield Table("Fields of the jobs that differ", *found) if found[1] else Note("Their jobs state the same.")
    else:
        named = [{name: inputs_of(record).get(name) for name in NAMING} for record in records]
        found = _unlike(labels, [_flat(one) for one in named], "job")
        yield Table("Jobs that differ", *found) if found[1] else Note("")
    options = [
        {
            **{name: value for name, value in _flat(inputs_of(record)).items() if name.split(".")[0] not in NAMING},
            "seed": record.get("seed"),
            **{f"version of {name}": own for name, own in (record.get("versions") or {}).items()},
        }
        for record in records
    ]
    found = _unlike(labels, options, "option")
    same = Note("Their options and versions are the same.")
    yield Table("Options and versions that differ", *found) if found[1] else same


def _flat_job(text: str) -> dict[str, Any]:
    """Fields of a job by their path; a preset in shorthand is written out."""
    data = dict(as_document(text))
    found = _flat(data)
    short = {".".join(path): f"{'.'.join(path)}.preset" for path in SHORTHAND}
    return {short.get(name, name): value for name, value in found.items()}


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Plain values by their path; a list of plain values is one, long lists of numbers are left out."""
    if isinstance(value, Mapping):
        inner = ((f"{place}.{name}" if place else str(name), own) for name, own in value.items())
        return {name: one for path, own in inner for name, one in _flat(own, path).items()}
    if isinstance(value, list):
        if any(isinstance(one, (Mapping, list)) for one in value):
            inner = ((f"{place}.{number}", own) for number, own in enumerate(value, 1))
            return {name: one for path, own in inner for name, one in _flat(own, path).items()}
        return {place: ", ".join(map(cell, value))} if len(value) <= LONGEST_LIST else {}
    return {place: value}


def _unlike(labels: str, each: Sequence[Mapping[str, Any]], heading: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what is not alike in all."""
    names = list(dict.fromkeys(name for one in each for name in one))
    rows = [
        [name, *(_said(one.get(name)) for one in each)]
        for name in names
        if any(one.get(name) != each[0].get(name) for one in each)
    ]
    return [heading, *labels], rows


def _said(value: Any) -> str:
    return UNSTATED if value in (None, "") else cell(value)


def _keys(labels: str, reports: Sequence[Report]) -> Table | None:
    """Figures of the JSON in which reports differ, with the difference where two are numbers."""
    each = [_flat({name: value for name, value in one.to_dict().items() if name not in NO_KEYS}) for one in reports]
    columns, rows = _unlike(labels, each, "key")
    if not rows:
        return None
    if len(reports) > 2:
        return Table("", columns, rows[:MOST_KEYS])
    first, second = each
    both = [[*row, *_difference(first.get(row[0]), second.get(row[0]))] for row in rows[:MOST_KEYS]]
    return Table("", [*columns, "B - A", "B / A"], both)


def _difference(a: Any, b: Any) -> tuple[str, str]:
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (a, b)):
        return "", ""
    return f"{b - a:+.4g}", f"{b / a:.4g}" if a else ""


def _compared(site: Site, labels: str, reports: Sequence[Report]) -> Iterator[Block]:
    """Which job would be measured faster, how much faster, and the figures behind it."""
    predictions = [one for one in reports if isinstance(one, PredictionReport)]
    jobs, why = _jobs(site, predictions)
    try:
        found = compared_predictions(predictions, jobs)
    except PrismError as error:
        found, why = compared_predictions(predictions, None), str(error)
    upper = found[1]
    together = (
        "It rests on the quantiles of the reports and on what the cost model does not know of their jobs, drawn for all "
        "together, so that what they share cancels, as in prism-jax compare."
    )
    apart = (
        f"What the cost model does not know of all these jobs together is not known here: {why}. Their intervals are taken as "
        "unrelated, so the probability is nearer to 50% than it is."
    )
    misfits = [label for label, one in zip(labels, predictions, strict=True) if not one.fits]
    misfit = f"{' and '.join(misfits)} {'does' if len(misfits) == 1 else 'do'} not fit into memory." if misfits else ""
    yield Group("Which is faster", [_verdict(labels, upper), Note(misfit, "bad"), Note(apart if why else together)])
    yield _figures(labels, predictions, found)
    if len(labels) > 2:
        title = f"Probability that the {upper.name} of the row would be measured less than that of the column"
        yield probability_table(title, list(labels), upper.prob_less)


def _jobs(site: Site, reports: Sequence[PredictionReport]) -> tuple[Any, str]:
    """Jobs as the reports keep them, or why they are not known."""
    if any(one.level is not None or one.record.inputs.get("fit") for one in reports):
        return None, "a fit or a log was applied"
    found = [job_of_report(site, record_of(one)) for one in reports]
    if any(one is None or not one.stated for one in found):
        return None, "a report keeps no job"
    try:
        return [job_of(one.document()) for one in found if one is not None], ""
    except PrismError as error:
        return None, str(error)


def _verdict(labels: str, found: ComparedQuantile) -> Note:
    """Which has the least value, and with what probability it would be measured so."""
    best = min(range(len(labels)), key=lambda at: found.values[at])
    if len(labels) > 2:
        others = ", ".join(
            f"{prob(found.prob_less[best][at])} against {labels[at]}" for at in range(len(labels)) if at != best
        )
        return Note(f"{labels[best]} has the least {found.name}; it would be measured less with probability {others}.")
    other = 1 - best
    if found.values[best] == found.values[other]:
        return Note(f"{labels[0]} and {labels[1]} have the same {found.name}.", "unsure")
    chance = found.prob_less[best][other]
    gain, low, high = _gain(found, best)
    words = f"{percent(gain)} (90% interval {percent(low, sign=True)} to {percent(high, sign=True)})"
    return Note(
        f"{labels[best]} beats {labels[other]} with probability {prob(chance)}: its {found.name} is lower by {words}.",
        "good" if chance >= 0.9 else "unsure",
    )


def _gain(found: ComparedQuantile, best: int) -> tuple[float, float, float]:
    """1 - value of `best` / value of the other of two, with its 90% interval."""
    middle, (low, high) = found.values[best] / found.values[1 - best], found.ratios[1]
    if best == 0:
        low, high = 1.0 / high, 1.0 / low
    return 1.0 - middle, 1.0 - high, 1.0 - low


def _figures(labels: str, reports: Sequence[PredictionReport], found: Sequence[ComparedQuantile]) -> Table:
    """Figures side by side; of two also the difference, the gain of B over A, and the probability that B is less."""
    two = len(labels) == 2
    rows = []
    for one in found:
        row = [one.name, *(_value(one, at) for at in range(len(labels)))]
        if two:
            gain, low, high = _gain(one, 1)
            words = f"{percent(gain, sign=True)} ({percent(low, sign=True)} to {percent(high, sign=True)})"
            row += [_minus(one), words, prob(one.prob_less[1][0])]
        rows.append(row)
    for name, (values, text) in _beside(reports).items():
        if all(value == value for value in values):
            added = values[1] - values[0]
            difference = [f"{'-' if added < 0.0 else '+'}{text(abs(added))}" if added else "0", "", ""] if two else []
            rows.append([name, *map(text, values), *difference])
    more = ["B - A", "gain of B (90% as measured)", "P(B beats A)"] if two else []
    return Table("Figures", ["figure", *labels, *more], rows)


def _value(found: ComparedQuantile, at: int) -> str:
    value, error = found.values[at], found.errors[at]
    return time_with_error(value, error) if found.unit == "s" else "{} ± {}".format(*with_error(value, error))


def _minus(found: ComparedQuantile) -> str:
    difference, error = found.values[1] - found.values[0], max(found.errors) or abs(found.values[0]) * 1e-4
    text = time_to(abs(difference), error) if found.unit == "s" else f"{abs(difference):.3g}"
    return f"{'-' if difference < 0.0 else '+'}{text}"


def _beside(reports: Sequence[PredictionReport]) -> dict[str, tuple[list[float], Callable[[float], str]]]:
    """Figures without an interval: values, NaN where one is not known, and how they are written."""
    unit = reports[0].job.sample_unit
    money = [nan if one.money is None else one.money.per_mtoken for one in reports]
    return {
        "GPUs": ([one.job.n_devices for one in reports], "{:,.0f}".format),
        f"{unit}/s per GPU": ([one.tokens_per_s_per_gpu for one in reports], "{:,.0f}".format),
        "MFU": ([one.mfu for one in reports], "{:.1%}".format),
        "memory per GPU": ([one.memory_bytes_per_gpu.total for one in reports], lambda size: format_bytes(size, 3)),
        f"money per million {unit}": (money, "{:.4g}".format),
    }


def _run_both(site: Site, reports: Sequence[Report]) -> h.Node:
    """A link to the form of `compare` of the jobs, where they are here and take the same options."""
    found = [job_of_report(site, record_of(one)) for one in reports]
    jobs = [one for one in found if one is not None and one.name]
    if len({one.name for one in jobs}) < len(reports) or len({one.overrides for one in jobs}) > 1:
        return None
    names, sets = (("job", one.name) for one in jobs), (("set", text) for text in jobs[0].overrides)
    query = [("command", "compare"), *names, *sets]
    return link("Run prism-jax compare of these jobs", f"/start?{urlencode(query)}")


ROUTES = (Route("/compare", show_comparison),)

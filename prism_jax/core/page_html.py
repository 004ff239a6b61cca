"""Prints pages as one HTML file without scripts and without addresses: everything it shows is inside, pictures as SVG.

Every text is escaped by htpy; the content policy in the file forbids whatever could still load or run. Light and dark follow the
reader's system. Several reports stand next to each other on wide screens, below one another on narrow ones. `prism-jax serve`
puts the same cards, blocks and sheets on its screens: no element has a style of its own, which a strict policy would forbid.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import htpy as h
from markupsafe import Markup

from .page import Bar, Bars, Block, Card, Code, Facts, Group, Note, Page, Table, curve_tables

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--text:#1b1d21;--soft:#565b63;--paper:#fff;--panel:#f4f5f7;--line:#d5d8dd;--bar:#332288;
--good:#0b6b2b;--bad:#a3102a;--unsure:#7a5200}
@media(prefers-color-scheme:dark){:root{--text:#e8e9eb;--soft:#a9aeb6;--paper:#17191c;--panel:#212429;--line:#3b4048;
--bar:#8f9df0;--good:#6fd48f;--bad:#ff8a96;--unsure:#f0c060}img{filter:invert(1) hue-rotate(180deg)}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:100rem;background:var(--paper);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{display:grid;gap:2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,38rem),1fr))}
article{min-width:0}h1{font-size:1.25rem;margin:0 0 .5rem}h2{font-size:1.05rem;margin:1.75rem 0 .5rem}
h3{font-size:1rem;margin:1.25rem 0 .4rem}p{margin:.4rem 0;white-space:pre-line}
.card{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:1rem}
.verdict{font-size:1.1rem;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.unsure{color:var(--unsure)}
dl{display:grid;grid-template-columns:minmax(5rem,max-content) minmax(0,1fr);gap:.25rem 1rem;margin:.5rem 0}
dt{color:var(--soft);max-width:16rem}dd{margin:0;white-space:pre-line}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.25rem .75rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);overflow-wrap:normal;
vertical-align:top}th{color:var(--soft);font-weight:600}.number{text-align:right;font-variant-numeric:tabular-nums}td.number{white-space:nowrap}
.bars td.number{white-space:normal}.words{min-width:14rem}
.bars td{border:0;overflow-wrap:anywhere;padding-top:.1rem;padding-bottom:.1rem}.bars td:last-child{width:40%;min-width:6rem}
.bar{display:block;width:100%;height:.8rem;fill:var(--bar)}img{max-width:100%;height:auto}
pre{overflow-x:auto;background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.75rem;font-size:.85rem}
details{margin-top:1rem}summary{cursor:pointer}footer{color:var(--soft);font-size:.85rem;margin-top:2rem}
"""


@dataclass(frozen=True)
class Sheet:
    """A report as HTML needs it.

    Attributes:
        kind: name of the report.
        page: what a person sees.
        svg: the picture; None where there is none.
        data: of `Report.to_dict`.
    """

    kind: str
    page: Page
    svg: bytes | None
    data: Mapping[str, Any]


def sheets_html(sheets: Sequence[Sheet]) -> str:
    """One HTML document of reports: their cards, pictures, blocks, and what is needed to repeat them."""
    title = " | ".join(one.page.card.title if one.page.card else one.kind for one in sheets)
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta({"http-equiv": "Content-Security-Policy", "content": POLICY}),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title[title],
            h.style[Markup(STYLE)],
        ],
        h.body[h.main[(h.article[sheet_html(one)] for one in sheets)], h.footer["Written by prism-jax."]],
    ]
    return str(document) + "\n"


def card_html(sheet: Sheet) -> str:
    """The card of a report with its picture, for notebooks; the whole page where it has no card."""
    page = sheet.page
    parts = [card_section(page.card)] if page.card else [block_html(one, 3) for one in page.blocks]
    return str(h.div[h.style[Markup(STYLE)], parts, _picture(sheet)])


def sheet_html(sheet: Sheet, picture: h.Node = None) -> list[h.Node]:
    """Elements of a report: its card, picture, blocks, and how to repeat it.

    Args:
        picture: in the place of the picture inside the file, where that stands elsewhere.
    """
    head = card_section(sheet.page.card) if sheet.page.card else h.h1[sheet.kind]
    drawn = picture or _picture(sheet)
    curves = _curves(sheet.data) if drawn else None
    return [head, drawn, curves, [block_html(one, 2) for one in sheet.page.blocks], _made(sheet)]


def card_section(card: Card) -> h.Element:
    """The card of a report, its title as heading of the page."""
    return h.section(".card")[
        h.h1[card.title],
        h.p(class_=f"verdict {card.tone}")[card.verdict],
        h.dl[[(h.dt[name], h.dd[text]) for name, text in card.rows]],
    ]


def _picture(sheet: Sheet) -> h.Element | None:
    if sheet.svg is None:
        return None
    coded = base64.b64encode(sheet.svg).decode("ascii")
    return h.p[h.img(src=f"data:image/svg+xml;base64,{coded}", alt=f"picture of this report ({sheet.kind})")]


def _curves(data: Mapping[str, Any]) -> h.Element | None:
    """Numbers of the curves that a picture draws, for those who do not see it."""
    tables = curve_tables(data)
    if not tables:
        return None
    return h.details[h.summary["Numbers of the picture"], [block_html(one, 2) for one in tables]]


def block_html(block: Block, level: int) -> h.Node:
    """A block of a report under a heading of `level` 2, or 3 below others."""
    heading = h.h2 if level == 2 else h.h3
    title = heading[block.title] if not isinstance(block, Note) and block.title else None
    match block:
        case Note():
            return h.p(class_=block.tone)[block.text]
        case Facts():
            return [title, h.dl[[(h.dt[name], h.dd[text]) for name, text in block.facts.items()]]]
        case Table():
            return [title, table_html(block)]
        case Bars():
            rows = (
                h.tr[
                    h.td[one.name],
                    h.td(".number")[one.text],
                    h.td[_bar(one)],
                ]
                for one in block.bars
            )
            return [title, h.table(".bars")[h.tbody[rows]]]
        case Code():
            return [title, h.pre(tabindex="0")[block.text]]
        case Group():
            return h.section[title, [block_html(one, level + 1) for one in block.blocks]]


def _bar(bar: Bar) -> h.Element:
    """A bar as long as its share (0-1) of the cell; the text next to it has the number."""
    start = max(0.0, min(1.0, bar.start))
    width = max(0.0, min(1.0 - start, bar.share))
    at = {"x": f"{100.0 * start:.1f}%"} if start else {}
    return h.svg(".bar", aria_hidden="true")[h.rect(at, width=f"{100.0 * width:.1f}%", height="100%")]


LONG = 24  # characters of a cell from which its column has room for words


def _class(block: Table, index: int) -> str | None:
    if block.is_numeric(index):
        return "number"
    return "words" if any(len(row[index]) > LONG for row in block.rows) else None


def table_html(block: Table, place: str | None = None) -> h.Element:
    """A table that scrolls by itself where it is wider than the screen; its title is read to those who do not see it.

    Args:
        place: id of the element, by which the focus stays in a table that is renewed.
    """
    classes = [_class(block, index) for index in range(len(block.columns))]
    columns = zip(block.columns, classes, strict=True)
    head = h.tr[[h.th(class_=own, scope="col")[name] if name else h.td for name, own in columns]]
    rows = [h.tr[[h.td(class_=own)[text] for text, own in zip(row, classes, strict=True)]] for row in block.rows]
    named = block.title or "table"
    return h.div(".wide", id=place, tabindex="0", role="region", aria_label=named)[
        h.table[h.thead[head], h.tbody[rows]]
    ]


def _made(sheet: Sheet) -> h.Element | None:
    """Inputs, versions and the command that repeats the run."""
    record = sheet.data.get("record") or sheet.data
    inputs, versions = record.get("inputs"), record.get("versions")
    if not isinstance(inputs, dict) or not isinstance(versions, dict):
        return None
    command = record.get("command")
    facts = {
        **{str(name): _text(value) for name, value in inputs.items()},
        "seed": _text(record.get("seed")),
        "revision": _text(record.get("git_revision")),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "schema": sheet.data["schema"],
    }
    whole = record.get("job_file")
    return h.details[
        h.summary["How to repeat this"],
        h.pre(tabindex="0")[command] if command else None,
        h.dl[[(h.dt[name], h.dd[text]) for name, text in facts.items() if text]],
        [h.h3["the whole job"], h.pre(tabindex="0")[whole]] if isinstance(whole, str) else None,
    ]


def _text(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)

"""How every screen is laid out: the document around it, its navigation, and the parts that screens share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import htpy as h
from markupsafe import Markup

from ..core.page import Card, Tone

CONFIG = '{"allowEval":false,"includeIndicatorStyles":false,"selfRequestsOnly":true,"historyCacheSize":0}'
NAVIGATION = {"/": "Folder", "/job": "New job", "/start": "Run a command", "/runs": "Runs"}
TYPED = re.compile(r"(?:^|[ (])--?[a-z]|\bprism-jax [a-z]")  # options and commands
PLACES = ("/static/report.css", "/static/serve.css")


def as_shown(card: Card) -> Card:
    """The card without a next step that is typed on a command line: a screen has buttons and links for it."""
    return replace(card, next_step="") if TYPED.search(card.next_step) else card


def document(title: str, *content: h.Node, here: str = "") -> h.Element:
    """One screen as a whole page; its heading is in `content`.

    Args:
        title: of the window.
        here: address of the screen, which the navigation marks.
    """
    links = (h.li[h.a(href=to, aria_current="page" if to == here else None)[name]] for to, name in NAVIGATION.items())
    return h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="htmx-config", content=CONFIG),
            h.link(rel="icon", href="/static/icon.svg"),
            h.title[f"{title} - prism-jax"],
            (h.link(rel="stylesheet", href=place) for place in PLACES),
            h.script(src="/static/htmx.min.js", defer=True),
            h.script(src="/static/serve.js", defer=True),
        ],
        h.body[
            h.a(".skip", href="#content")["Skip to the content"],
            h.header[h.nav(aria_label="Screens")[h.ul[links]]],
            h.main("#content.screen", tabindex="-1")[content],
            h.footer["prism-jax on this machine. Nothing leaves it."],
        ],
    ]


def heading(text: str, *beside: h.Node) -> h.Element:
    """The heading of a screen, with what stands next to it."""
    return h.div(".heading")[h.h1[text], beside]


def link(text: str, to: str) -> h.Element:
    """A link to another screen that looks like a button."""
    return h.a(".button", href=to)[text]


def form(to: str, *content: h.Node, button: str = "", **attributes: str) -> h.Element:
    """A form that is posted to an address of this site; `button` sends it."""
    named = {name.replace("_", "-"): value for name, value in attributes.items()}
    return h.form(named, action=to, method="post")[content, h.button(type="submit")[button] if button else None]


def choice(
    label: str, name: str, options: Mapping[str, str], chosen: str = "", *, place: str = "", **said: str
) -> list[h.Node]:
    """A field whose value is one of a few, with its label.

    Args:
        options: value -> in words.
        place: id of the element, where that is not the name.
        said: further attributes.
    """
    shown = (h.option(value=value, selected=value == chosen)[text] for value, text in options.items())
    return [h.label(for_=place or name)[label], h.select(id=place or name, name=name, **said)[shown]]


def hidden(fields: Mapping[str, str]) -> Iterable[h.VoidElement]:
    """Fields that a form sends and nobody sees."""
    return (h.input(type="hidden", name=name, value=value) for name, value in fields.items())


def action(text: str, to: str, **fields: str) -> h.Element:
    """A button that posts a few fields."""
    return form(to, hidden(fields), button=text)


def notice(text: str, tone: Tone = "plain", *more: h.Node) -> h.Element:
    """A message in a frame; errors and refusals are told to screen readers at once."""
    return h.div(class_=f"notice {tone}", role="alert" if tone == "bad" else "status")[h.p[text], more]


def failure(lines: Iterable[str]) -> h.Element:
    """An error in its own words: every line names its place."""
    return h.div(".notice.bad", role="alert")[h.ul[(h.li[line] for line in lines if line)]]


def left_out(*texts: str) -> h.Node:
    """Says what a list does not show; nothing where no text does."""
    return [notice(text, "unsure") for text in texts if text]


def copied(text: str, what: str) -> h.Element:
    """A command or arguments with a button that copies them."""
    return h.div(".copied")[
        h.pre(tabindex="0", aria_label=what)[text],
        h.button(type="button", data_copy=text)[f"Copy {what}"],
    ]


def picture(src: str, title: str) -> h.Element:
    """A picture of a report, by its address."""
    return h.figure[h.img(src=src, alt=title, loading="lazy"), h.figcaption[title]]


def trusted(text: str) -> Markup:
    """HTML that htpy has written."""
    return Markup(text)

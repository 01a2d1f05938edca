"""An extension of Markdown: tables that fit on the page.

Long names in a table may break between their words. Each cell of a wide table gets the name of its
column: on a narrow screen `book.css` shows every row of such a table as a card with these names in
it. A table of two columns fits as it is, and numbers are there to be compared: both stay tables,
unless they have more than four columns.
"""

from __future__ import annotations

import re

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
HEAD = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
LONG = re.compile(r"(?<=<code>)[^<]{24,}(?=</code>)")
BETWEEN_WORDS = re.compile(r"(?<=\w_|::|\w\.|\w\()(?=\w)")
CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)


class Cards(Postprocessor):
    def run(self, text: str) -> str:
        return TABLE.sub(lambda found: named(found[0]), text)


class CardsExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.postprocessors.register(Cards(md), "cards", 0)


def makeExtension(**settings: object) -> CardsExtension:
    return CardsExtension(**settings)


def named(table: str) -> str:
    table = LONG.sub(lambda found: BETWEEN_WORDS.sub("<wbr>", found[0]), table)
    names = [re.sub(r"<[^>]+>", "", name).replace('"', "&quot;") for name in HEAD.findall(table)]
    has_numbers = "text-align: right" in table
    if len(names) < (5 if has_numbers else 3):
        return table

    def row(found: re.Match[str]) -> str:
        column = iter(names)

        def cell(found: re.Match[str]) -> str:
            # A number says nothing without its column, so it cannot be the heading of a card.
            number = " data-figure" if found[2][:1].isdigit() else ""
            return f'<td data-column="{next(column)}"{number}{found[1]}><div>{found[2]}</div></td>'

        return CELL.sub(cell, found[0])

    return ROW.sub(row, table).replace("<table>", "<table data-cards>")

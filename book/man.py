"""Turns the man pages that `man.awk` writes into pages of HTML: man.py MAN3 FOLDER

It knows the requests of those pages, and fails at any other.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name}</title><link rel="stylesheet" href="../plain.css">
<body><p><a href="../../index.html">The book</a>, <a href="../index.html">references</a>
<p class="pages">{pages}
"""

NAME = re.compile(r"\bpwk_\w+")


def plain(line: str) -> str:
    """The text of a line, without the escapes of a man page."""
    return html.escape(re.sub(r"\\([-e&])", lambda found: {"-": "-", "e": "\\", "&": ""}[found[1]], line), quote=False)


def anchor(line: str) -> str:
    return re.sub(r"\W+", "-", line.strip().lower())


def page(name: str, text: str, places: dict[str, str]) -> str:
    """`places` says where each function and type is described."""

    def linked(line: str) -> str:
        def link(word: re.Match[str]) -> str:
            place = places.get(word[0])
            return f'<a href="{place.removeprefix(f"{name}.html")}">{word[0]}</a>' if place else word[0]

        return NAME.sub(link, line)

    pages = sorted({place.partition(".")[0] for place in places.values()} | {"pipework"})
    others = [each if each == name else f'<a href="{each}.html">{each}</a>' for each in pages]
    out = [HEAD.format(name=name, pages=" ".join(others))]
    for line in text.splitlines():
        request, _, rest = line.partition(" ")
        match request:
            case ".TH":
                out.append(f"<h1>{name}</h1>")
            case ".SH":
                out.append(f"<h2>{plain(rest).capitalize()}</h2>")
            case ".SS":
                out.append(f'<h3 id="{anchor(rest)}">{plain(rest)}</h3>')
            case ".nf" | ".EX":
                out.append("<pre>")
            case ".fi" | ".EE":
                out.append("</pre>")
            case ".PP":
                out.append("<p>")
            case ".TP":
                out.append("<p class='item'>")
            case ".B":
                out.append(f"<b>{plain(rest)}</b><br>")
            case _ if request.startswith("."):
                raise SystemExit(f"{name}: the request {request} is not known")
            case _:
                out.append(linked(plain(line)))
    return "\n".join(out) + "\n"


def main(pages: Path, folder: Path) -> None:
    # The related pages also stand at the head of each page.
    texts = {path.stem: path.read_text().partition(".SH SEE ALSO\n")[0] for path in sorted(pages.glob("*.3"))}
    whole = [name for name, text in texts.items() if not text.startswith(".so ")]
    places, about = {}, {}
    for name in whole:
        titles = re.findall(r"^\.SS (pwk_\w+)$", texts[name], re.MULTILINE)
        places |= {title: f"{name}.html#{anchor(title)}" for title in titles}
        about |= dict(re.findall(rf"^({name})(?:, \w+)* \\- (.*)$", texts[name], re.MULTILINE))
    for name in whole:
        written = page(name, texts[name], places)
        if name == "pipework":
            rows = [f'<li><a href="{other}.html">{other}</a>: {plain(text.replace("`", ""))}</li>'
                    for other, text in about.items() if other != name]  # fmt: skip
            contents = "\n".join(["<h2>Pages</h2>", "<ul>", *rows, "</ul>"])
            written = written.replace("<h2>Description</h2>", f"{contents}\n<h2>Description</h2>")
        (folder / f"{name}.html").write_text(written)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

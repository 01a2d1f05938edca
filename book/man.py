"""Turns the man pages that `man.awk` writes into pages of HTML: man.py MAN3 FOLDER

It knows the requests that stand in those pages, and stops at any other.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name}</title><link rel="stylesheet" href="../plain.css">
<body><p><a href="pipework.html">pipework.h</a></p>
"""


def plain(line: str) -> str:
    """The text of a line, without the escapes of a man page."""
    return html.escape(re.sub(r"\\([-e&])", lambda found: {"-": "-", "e": "\\", "&": ""}[found[1]], line), quote=False)


def anchor(line: str) -> str:
    return re.sub(r"\W+", "-", line.strip().lower())


def page(name: str, text: str) -> str:
    out = [HEAD.format(name=name)]
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
            case ".BR":
                other, _, section = rest.partition(" ")
                out.append(f'<a href="{other}.html">{other}</a>{section.replace(" ", "")}')
            case ".B":
                out.append(f"<b>{plain(rest)}</b><br>")
            case _ if request.startswith("."):
                raise SystemExit(f"{name}: the request {request} is not known")
            case _:
                out.append(plain(line))
    return "\n".join(out) + "\n"


def main(pages: Path, folder: Path) -> None:
    texts = {path.stem: path.read_text() for path in sorted(pages.glob("*.3"))}
    for name in (name for name, text in texts.items() if not text.startswith(".so ")):
        (folder / f"{name}.html").write_text(page(name, texts[name]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

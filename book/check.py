"""Checks every link of a built site: check.py SITE [FOLDER]

Links within the site must lead to a page, and to an anchor that it has. Of links to other sites only
the syntax is checked; nothing is fetched. Links may lead to the pages of rustdoc and pdoc, but the
links on those pages are not checked.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[int, str]] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(errors="replace"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append((self.getpos()[0], value))
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")


page = cache(Page)


def fault(site: Path, left_out: Path | None, source: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme in ("data", "mailto", "javascript"):
        return None
    if parts.scheme or parts.netloc:
        is_address = parts.scheme in ("http", "https") and "." in parts.netloc and " " not in link
        return None if is_address else "no address"
    base = site if parts.path.startswith("/") else source.parent
    target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else source
    if left_out and left_out in target.parents and not target.exists():
        return None
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "does not exist"
    # A fragment that begins with `__` is a setting of the page itself.
    is_known = not parts.fragment or target.suffix != ".html" or parts.fragment.startswith("__")
    return None if is_known or unquote(parts.fragment) in page(target).anchors else "has no such anchor"


def main(site: Path, left_out: Path | None) -> None:
    written = {site / "reference/rust", site / "reference/python"}
    sources = [path for path in sorted(site.rglob("*.html")) if not written & set(path.parents)]
    count = 0
    faults = []
    for source in sources:
        for line, link in page(source).links:
            count += 1
            if what := fault(site, left_out, source, link):
                faults.append(f"{source.relative_to(site)}:{line}: {link}: {what}")
    print(f"{count} links on {len(sources)} pages, {len(faults)} of them broken")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    main(site, site / sys.argv[2] if len(sys.argv) > 2 else None)

"""Writes the pages of the book into a folder, for the generator to read: stage.py FOLDER

The texts stand in the repository, one place for each, and read well there. On the way into the book
- a link to a file of the repository leads to its page, or to a page that shows the file;
- headings that are names of languages, one after the other, become tabs, and a tab that is nothing
  but a link shows the program that the link leads to;
- a long text with questions and answers becomes a page for each of its sections;
- pages that show data are written: the records of the benchmarks, and the list of references.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABS = ("Rust", "Python", "Perl", "C", "Shell", "Crystal")

# Texts that stand outside docs/, and what their pages are called.
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "contribute/architecture.md",
    "CONTRIBUTING.md": "contribute/index.md",
    "CHANGELOG.md": "contribute/changes.md",
    "bench/README.md": "benchmarks/method.md",
    "bridge/nats/BRIDGE.md": "formats/bridge.md",
    "crates/pipework/src/atomic/WIRE.md": "formats/wire.md",
    "crates/pipework/src/reqrep/SEGMENT.md": "formats/segment.md",
    "perl/COMPAT.md": "perl/compat.md",
    "perl/README.md": "perl/package.md",
    "python/README.md": "python/package.md",
}
# Texts of which each section is a page, in a folder.
SPLIT = {"docs/design.md": "design"}

REFERENCES = [
    ("Rust: the crate pipework", "rust/pipework/index.html"),
    ("Python: the package pipework", "python/pipework.html"),
    ("Perl: Pipework::Atomic", "perl/Pipework-Atomic.html"),
    ("Perl: Pipework::ReqRep", "perl/Pipework-ReqRep.html"),
    ("Perl: Pipework::FD", "perl/Pipework-FD.html"),
    ("Perl: Pipework::Pipe", "perl/Pipework-Pipe.html"),
    ("C: pipework.h", "c/pipework.html"),
]

LANGUAGE = {".c": "c", ".h": "c", ".json": "json", ".pl": "perl", ".pm": "perl", ".py": "python", ".rs": "rust",
            ".sh": "bash", ".toml": "toml", ".yml": "yaml"}  # fmt: skip

FENCE = re.compile(r"^ *(```+|~~~+)")
LINK = re.compile(r"(!?\[(?:[^\]`]|`[^`]*`)*\]\()([^)\s]+)(\))")


def pages() -> dict[str, str]:
    """Which file of the repository is which page."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    own = {str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs")) for path in docs}
    split = {path: f"{folder}/index.md" for path, folder in SPLIT.items()}
    return own | split | ELSEWHERE


def slug(heading: str) -> str:
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def outside_of_code(text: str) -> list[tuple[str, bool]]:
    """The lines of a text, and whether each is prose."""
    lines, fence = [], ""
    for line in text.splitlines():
        found = FENCE.match(line)
        lines.append((line, not fence and not found))
        if found:
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
    return lines


class Book:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = pages()
        self.shown: set[str] = set()  # files of the repository that some page links to

    def write(self, page: str, text: str) -> None:
        # What follows the language is for the tests.
        text = re.sub(r"^( *`{3,}rust),\w+$", r"\1", text, flags=re.MULTILINE)
        # The generator tells what is typed from what is printed.
        text = re.sub(r"^( *`{3,})text(?=\n *\$ )", r"\1console", text, flags=re.MULTILINE)
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip("\n") + "\n")

    # ------------------------------------------------------------ links

    def target(self, source: str, page: str, link: str) -> str:
        """Where a link of `source`, a file of the repository, leads to from its page."""
        name, _, anchor = link.partition("#")
        if not name or ":" in name:
            return link
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        if not (ROOT / path).exists():
            raise SystemExit(f"{source}: {link} does not exist")
        if path in SPLIT and anchor:
            led = self.section_of(path, anchor)
        elif path in self.pages:
            led = self.pages[path]
        elif path.startswith("docs/") and (ROOT / path).is_file():
            led = path.removeprefix("docs/")
        elif path.endswith((".svg", ".json")):
            led = f"source/{path}"
            (self.folder / led).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / led).write_bytes((ROOT / path).read_bytes())
        else:
            self.shown.add(path)
            led = f"source/{path}.md"
        relative = posixpath.relpath(led, posixpath.dirname(page) or ".")
        return f"{relative}#{anchor}" if anchor else relative

    def section_of(self, path: str, anchor: str) -> str:
        """The page on which a section of a text stands that is split."""
        section = "index"
        for line, is_prose in outside_of_code((ROOT / path).read_text()):
            heading = re.match(r"(#+) (.*)", line) if is_prose else None
            if heading and len(heading[1]) == 2:
                section = slug(heading[2])
            if heading and slug(heading[2]) == anchor:
                return f"{SPLIT[path]}/{section}.md"
        raise SystemExit(f"{path} has no section #{anchor}")

    def linked(self, text: str, source: str, page: str) -> str:
        def led(match: re.Match[str]) -> str:
            return match[1] + self.target(source, page, match[2]) + match[3]

        lines = [LINK.sub(led, line) if is_prose else line for line, is_prose in outside_of_code(text)]
        return "\n".join(lines)

    # ------------------------------------------------------------ pages

    def stage(self) -> None:
        for source, page in self.pages.items():
            text = (ROOT / source).read_text()
            if source in SPLIT:
                self.split(source, text)
            else:
                self.write(page, self.linked(tabbed(text, source), source, page))
        for path in (ROOT / "docs").rglob("*"):
            if path.is_file() and path.suffix != ".md":
                copy = self.folder / path.relative_to(ROOT / "docs")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
        (self.folder / "book.css").write_bytes((ROOT / "book/book.css").read_bytes())
        self.benchmarks()
        self.references()
        for shown in sorted(self.shown):
            self.show(shown)

    def split(self, source: str, text: str) -> None:
        """A page for each section, and one for what stands before them, with a list of them."""
        sections: list[tuple[str, list[str]]] = [("", [])]
        for line, is_prose in outside_of_code(text):
            if is_prose and line.startswith("## "):
                sections.append((line.removeprefix("## "), []))
            else:
                sections[-1][1].append(line)
        folder = SPLIT[source]
        contents = [f"- [{heading}]({slug(heading)}.md)" for heading, _ in sections[1:]]
        index = f"{folder}/index.md"
        head = self.linked("\n".join(sections[0][1]), source, index)
        self.write(index, "\n".join([head, "", *contents]))
        for heading, lines in sections[1:]:
            page = f"{folder}/{slug(heading)}.md"
            self.write(page, self.linked("\n".join([f"# {heading}", *lines]), source, page))

    def show(self, path: str) -> None:
        """A page with a file of the repository, or with the list of a folder's files."""
        place, page = ROOT / path, f"source/{path}.md"
        if place.is_dir():
            names = sorted(child.name for child in place.iterdir() if not child.name.startswith("."))
            self.write(page, "\n".join([f"# {path}/", "", *(f"- `{name}`" for name in names)]))
            return
        text = place.read_text()
        # A search finds texts, and not the programs that they lead to.
        head = "---\nsearch:\n  exclude: true\n---\n\n"
        language = LANGUAGE.get(place.suffix) or ("bash" if text.startswith("#!/usr/bin/env bash") else "text")
        self.write(page, f"{head}# {path}\n\n`````{language}\n{text}`````\n")

    def references(self) -> None:
        """A page that leads to what the tools of each language write. Its links are plain HTML, for
        the generator does not know those pages."""
        lines = ["# References", "", "What each function does, from the sources themselves.", "", '<ul class="references">']
        lines += [f'<li><a href="{page}">{html.escape(name)}</a></li>' for name, page in REFERENCES]
        self.write("reference/index.md", "\n".join([*lines, "</ul>"]))

    def benchmarks(self) -> None:
        """A page for each make of CPU: each record as a picture and as a table of its medians."""
        for make in sorted(path for path in (ROOT / "bench/record").iterdir() if path.is_dir()):
            records = sorted(make.glob("*.json"))
            parts = [f"# Measured on {make.name}", "The time of one operation, the median of all rounds: shorter is better. "
                     "[What is measured](method.md), and how to read it."]  # fmt: skip
            parts += [self.record(path, json.loads(path.read_text())) for path in records]
            self.write(f"benchmarks/{make.name}.md", "\n\n".join(parts))

    def record(self, path: Path, record: dict[str, Any]) -> str:
        machine, source = record["machine"], str(path.relative_to(ROOT))
        facts = [f"{machine['cores']} cores", machine["kernel"], f"{record['rounds']} rounds"]
        if "coherence_ns" in machine:
            facts.append(f"a changed word takes {machine['coherence_ns']} ns from one CPU to the other")
        lines = [f"## {record['room']}, {record['date']}", "", f"{machine.get('make', machine['cpu'])}, {', '.join(facts)}.",
                 f"[The record]({self.target(source, f'benchmarks/{path.parent.name}.md', path.name)})."]  # fmt: skip
        for case in record["cases"]:
            lanes = [(lane["name"], statistics.median(lane["wall_ns"]) / lane["ops"]) for lane in case["lanes"] if lane["ops"]]
            longest = max((time for _, time in lanes), default=0)
            rows = [bar(name, time, longest) for name, time in lanes]
            lines += ["", f"**{case['name']}**", "", '<div class="bars" markdown="0">', *rows, "</div>"]
        lines += ["", "| bar | reached | asked for |", "| --- | ---: | ---: |"]
        lines += [f"| {bar['name']} | {short(bar['value'])} | {short(bar['at_least'])} |" for bar in record["bars"]]
        return "\n".join(lines)


def short(value: float | None) -> str:
    """Three digits of a number, or that there is none."""
    return "absent" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def bar(name: str, time: float, longest: float) -> str:
    """A row of a drawing: a name, a bar as long as the time of an operation, and that time."""
    unit, size = next((unit, size) for unit, size in [("ns", 1), ("µs", 1e3), ("ms", 1e6)] if time < 1000 * size or size == 1e6)
    ours = " ours" if name.lower().startswith(("pipework", "rust")) else ""
    return (f"<span>{html.escape(name)}</span><span><i class='bar{ours}' style='width:{max(time / longest * 100, 0.5):.1f}%'></i>"
            f"</span><span>{short(time / size)} {unit}</span>")  # fmt: skip


def tabbed(text: str, source: str) -> str:
    """Headings that are names of languages, one after the other, as tabs."""
    lines: list[str] = []
    depth = 0  # of the heading of the tab that is open
    for line, is_prose in outside_of_code(text):
        alone = re.fullmatch(r"\[.*\]\((\S+)\)", line) if depth and is_prose else None
        if alone:
            lines += [f"    {shown}" if shown else "" for shown in program(source, alone[1]).splitlines()]
            lines.append("")
        heading = re.match(r"(#{3,}) (.*)", line) if is_prose else None
        if heading and heading[2] in TABS:
            depth = len(heading[1])
            lines.append(f'=== "{heading[2]}"')
        elif depth and is_prose and (found := re.match(r"(#+) ", line)) and len(found[1]) <= depth:
            depth = 0
            lines.append(line)
        else:
            lines.append(f"    {line}" if depth and line else line)
    return "\n".join(lines)


def program(source: str, link: str) -> str:
    """The program that a link leads to: a file, or the first block of a section or of a page."""
    name, _, anchor = link.partition("#")
    path = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
    text = path.read_text()
    if path.suffix != ".md":
        return f"````{LANGUAGE[path.suffix]}\n{text}````"
    block: list[str] = []
    is_there = not anchor
    for line, is_prose in outside_of_code(text):
        if not is_prose and is_there:
            block.append(line)
        elif block:
            return "\n".join(block)
        elif is_prose and line.startswith("#"):
            is_there = not anchor or slug(line.lstrip("# ")) == anchor
    raise SystemExit(f"{source}: {link} leads to no program")


def configuration(docs: Path) -> str:
    """`mkdocs.yml`, each folder with a star replaced by the pages that no other line names."""
    lines = (ROOT / "book/mkdocs.yml").read_text().splitlines()
    expanded = []
    for line in lines:
        if not line.endswith("/*"):
            expanded.append(line)
            continue
        start, _, folder = line.removesuffix("/*").rpartition(" ")
        named = set(re.findall(rf"{folder}/[\w.-]+\.md", "\n".join(lines)))
        found = sorted(str(path.relative_to(docs)) for path in (docs / folder).glob("*.md"))
        expanded += [f"{start} {page}" for page in found if page not in named]
    return "\n".join(expanded) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    Book(folder / "docs").stage()
    shutil.copytree(ROOT / "book/theme", folder / "theme")
    shutil.copy(ROOT / "book/tables.py", folder)
    (folder / "mkdocs.yml").write_text(configuration(folder / "docs"))

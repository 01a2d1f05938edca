"""Writes the pages of the book into a folder, for the generator to read: stage.py FOLDER

The texts stand in the repository, one place for each, and read well there. On the way into the book
- a link to a file of the repository leads to its page, or to a page that shows the file;
- headings that are names of languages, one after the other, become tabs, and so do folded blocks; a
  tab that is nothing but a link shows the program that the link leads to;
- a long text becomes a page for each of its sections;
- pages that show data are written: the records of the benchmarks, and the list of references.
"""

from __future__ import annotations

import html
import itertools
import json
import posixpath
import re
import shutil
import statistics
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABS = ("Rust", "Python", "Node", "Perl", "C", "Shell", "Crystal")

# Texts outside docs/, and the names of their pages.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contribute/index.md",
    "CHANGELOG.md": "contribute/changes.md",
    "node/README.md": "node/package.md",
    "perl/README.md": "perl/package.md",
    "python/README.md": "python/package.md",
}
# Texts of which each section is a page, in a folder.
SPLIT = {
    "ARCHITECTURE.md": "contribute/architecture",
    "bench/README.md": "benchmarks/method",
    "bridge/nats/BRIDGE.md": "formats/bridge",
    "crates/pipework/src/atomic/WIRE.md": "formats/wire",
    "crates/pipework/src/broadcast/BROADCAST.md": "formats/broadcast",
    "crates/pipework/src/reqrep/SEGMENT.md": "formats/segment",
    "crates/pipework/src/segment/FILE.md": "formats/file",
    "docs/design.md": "design",
    "docs/io-fd.md": "io-fd",
    "perl/COMPAT.md": "perl/compat",
}
# The addition to the heading of such a page, for a reader who comes from a search.
OF = {"benchmarks/method": "benchmarks", "contribute/architecture": "code", "design": "design",
      "formats/bridge": "bridge", "formats/broadcast": "broadcast", "formats/file": "file",
      "formats/segment": "segment", "formats/wire": "wire",
      "io-fd": "module `fd`", "perl/compat": "Perl"}  # fmt: skip
# Settings of pages. A wide table needs the space that the list of contents takes.
HEAD = {"index.md": "hide: [navigation, toc]", "io-fd/": "hide: [toc]", "errors.md": "hide: [toc]",
        "options.md": "hide: [toc]", "source/": "search: {exclude: true}"}

# The pages that the tools of each language write, and that the page of references leads to.
REFERENCES = {
    "Rust": {"the crate `pipework`": "rust/pipework/index.html"}
    | {f"module `{module}`": f"rust/pipework/{module}/index.html" for module in ("atomic", "reqrep", "broadcast", "pipe", "fd")}
    | {"every error": "rust/pipework/enum.ErrorKind.html"},
    "Python": {"the package `pipework`": "python/pipework.html"}
    | {f"`pipework.{name}`": f"python/pipework/{name}.html" for name in ("atomic", "reqrep", "pipe", "fd", "logging", "multiprocessing")},
    "Perl": {"all of it, `Pipework`": "perl/Pipework.html"}
    | {f"`Pipework::{name.replace('-', '::')}`": f"perl/Pipework-{name}.html"
       for name in ("Atomic", "ReqRep", "ReqRep-Client", "Pipe", "FD", "Error", "InsteadOf")},
    "C": {"`pipework.h`": "c/pipework.html", "sending messages": "c/pwk_atomic_writer.html",
          "receiving them": "c/pwk_atomic_reader.html", "calling": "c/pwk_client.html", "serving": "c/pwk_server.html",
          "a segment": "c/pwk_segment.html", "a channel of broadcast": "c/pwk_broadcast.html",
          "publishing": "c/pwk_publisher.html", "subscribing": "c/pwk_subscriber.html",
          "statuses and errors": "c/pwk_status.html"},
}  # fmt: skip

LANGUAGE = {".c": "c", ".h": "c", ".json": "json", ".mjs": "js", ".pl": "perl", ".pm": "perl", ".py": "python", ".rs": "rust",
            ".sh": "bash", ".toml": "toml", ".yml": "yaml"}  # fmt: skip

FENCE = re.compile(r"^ *(```+|~~~+)")
FOLDED = re.compile(r"^<details>\n<summary>(.*?)</summary>\n(.*?)^</details>$", re.DOTALL | re.MULTILINE)
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
        self.order: dict[str, dict[str, str]] = {}  # the pages of a folder in reading order, and their names there

    def write(self, page: str, text: str) -> None:
        # The words behind the language are for the tests.
        text = re.sub(r"^( *`{3,}rust),\w+$", r"\1", text, flags=re.MULTILINE)
        # In a console the generator tells typed lines from printed ones.
        text = re.sub(r"^( *`{3,})text(?=\n *\$ )", r"\1console", text, flags=re.MULTILINE)
        head = "".join(f"---\n{entry}\n---\n\n" for begin, entry in HEAD.items() if page.startswith(begin))
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + text.rstrip("\n") + "\n")

    # ------------------------------------------------------------ links

    def target(self, source: str, page: str, link: str) -> str:
        """Where a link of `source`, a file of the repository, leads to from its page."""
        name, _, anchor = link.partition("#")
        if ":" in name or (not name and source not in SPLIT):
            return link
        name = name or posixpath.basename(source)
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

        # The words of a link may stand on two lines.
        blocks = itertools.groupby(outside_of_code(text), key=lambda line: line[1])
        joined = ((is_prose, "\n".join(line for line, _ in block)) for is_prose, block in blocks)
        return "\n".join(LINK.sub(led, block) if is_prose else block for is_prose, block in joined)

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
        for name in ("book.css", "iframe-worker.js"):
            shutil.copy(ROOT / "book" / name, self.folder)
        self.benchmarks()
        self.references()
        for shown in sorted(self.shown):
            self.show(shown)

    def split(self, source: str, text: str) -> None:
        """A page for each section, and one for the text before them, with a list of them."""
        sections: list[tuple[str, list[str]]] = [("", [])]
        for line, is_prose in outside_of_code(text):
            if is_prose and line.startswith("## "):
                sections.append((line.removeprefix("## "), []))
            else:
                sections[-1][1].append(line)
        folder = SPLIT[source]
        self.order[folder] = {f"{folder}/{slug(heading) or 'index'}.md": heading for heading, _ in sections}
        contents = [f"- [{heading}]({slug(heading)}.md)" for heading, _ in sections[1:]]
        index = f"{folder}/index.md"
        head = self.linked("\n".join(sections[0][1]), source, index)
        self.write(index, "\n".join([head, "", *contents]))
        for heading, lines in sections[1:]:
            page = f"{folder}/{slug(heading)}.md"
            title = f"# {heading} ({OF[folder]}) {{#{slug(heading)}}}"
            self.write(page, self.linked("\n".join([title, *lines]), source, page))

    def show(self, path: str) -> None:
        """A page with a file of the repository, or with the list of a folder's files."""
        place, page = ROOT / path, f"source/{path}.md"
        if place.is_dir():
            names = sorted(child.name for child in place.iterdir() if not child.name.startswith("."))
            self.write(page, "\n".join([f"# {path}/", "", *(f"- `{name}`" for name in names)]))
            return
        text = place.read_text()
        language = LANGUAGE.get(place.suffix) or ("bash" if text.startswith("#!/usr/bin/env bash") else "text")
        self.write(page, f"# {path}\n\n`````{language}\n{text}`````\n")

    def references(self) -> None:
        """A page that leads to the pages that the tools of each language write. Its links are plain HTML,
        because the generator does not know those pages."""
        lines = ["# API references", "", "All functions, types and errors, written from the sources."]
        code = partial(re.sub, "`(.*?)`", r"<code>\1</code>")
        for language, pages in REFERENCES.items():
            lines += ["", f"## {language}", "", "<ul>"]
            lines += [f'<li><a href="{page}">{code(name)}</a></li>' for name, page in pages.items()]
            lines += ["</ul>"]
        self.write("reference/index.md", "\n".join(lines))

    def benchmarks(self) -> None:
        """A page for each record, with a picture and a table of its medians; and one for each make of
        CPU, with a list of them."""
        for make in sorted(path for path in (ROOT / "bench/record").iterdir() if path.is_dir()):
            folder = f"benchmarks/{make.name}"
            records = [(path, json.loads(path.read_text())) for path in sorted(make.glob("*.json"))]
            pages = [f"{folder}/{path.stem}.md" for path, _ in records]
            names = [f"{record['module']}, {record['date']}" for _, record in records]
            self.order[folder] = {f"{folder}/index.md": "", **dict(zip(pages, names, strict=True))}
            rows = []
            for path, record in records:
                cells = [f"[{record['module']}]({path.stem}.md)", record["date"], record["rounds"], len(record["cases"])]
                rows.append(f"| {' | '.join(map(str, cells))} |")
            machine = records[-1][1]["machine"]
            self.write(f"{folder}/index.md", "\n".join([
                f"# Measured on {cpu(machine)}", "",
                f"{machine['make'] or machine['cpu']}, {machine['cores']} cores, {machine['kernel']}. "
                "[How it is measured, and what is wrong with it](../../speed.md#how-it-is-measured).", "",
                "| record | date | rounds | cases |", "| --- | --- | ---: | ---: |", *rows]))  # fmt: skip
            for page, (path, record) in zip(pages, records, strict=True):
                self.write(page, self.record(page, path, record))

    def record(self, page: str, path: Path, record: dict[str, Any]) -> str:
        machine, source = record["machine"], str(path.relative_to(ROOT))
        method = f"bench/README.md#what-is-measured-{record['module']}"
        facts = [f"{machine['cores']} cores", machine["kernel"], f"{record['rounds']} rounds", record["date"]]
        if "coherence_ns" in machine:
            facts.append(f"a changed word takes {machine['coherence_ns']} ns from one CPU to the other")
        lines = [f"# {record['module']} on {cpu(machine)}", "",
                 "The time of one operation, the median of all rounds: shorter is better. "
                 f"[What is measured]({self.target('README.md', page, method)}) says what the names mean.", "",
                 f"{machine['make'] or machine['cpu']}, {', '.join(facts)}. "
                 f"[The record]({self.target(source, page, path.name)}).", "", "## Cases"]  # fmt: skip
        for case in record["cases"]:
            contenders = [(each["name"], statistics.median(each["wall_ns"]) / each["ops"]) for each in case["contenders"] if each["ops"]]
            longest = max((time for _, time in contenders), default=0)
            rows = [drawn(name, time, longest) for name, time in contenders]
            lines += ["", f"**{case['name']}**", "", '<div class="bars" markdown="0" data-search-exclude>', *rows, "</div>"]
        lines += ["", "## Targets", "", "Ratios of speed. Missed targets are bold.", "",
                  "| ratio | reached | target |", "| --- | ---: | ---: |"]  # fmt: skip
        for target in record["targets"]:
            value, asked = target["value"], target["at_least"]
            reached = short(value) if value is None or value >= asked else f"**{short(value)}**"
            lines.append(f"| {target['name']} | {reached} | {short(asked)} |")
        return "\n".join(lines)


def cpu(machine: dict[str, Any]) -> str:
    """The name of a CPU, with its family and model, if they are known."""
    return " ".join([machine["cpu"], "-".join(machine.get("make", "").split()[1:])]).strip()


def short(value: float | None) -> str:
    """Three digits of a number, or that there is none."""
    return "absent" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def drawn(name: str, time: float, longest: float) -> str:
    """A row of a drawing: a name, a bar as long as the time of an operation, and that time."""
    unit, size = next((unit, size) for unit, size in [("ns", 1), ("µs", 1e3), ("ms", 1e6)] if time < 1000 * size or size == 1e6)
    ours = " ours" if name.lower().startswith(("pipework", "rust")) else ""
    return (f"<span>{html.escape(name)}</span><span><i class='bar{ours}' style='width:{max(time / longest * 100, 0.5):.1f}%'></i>"
            f"</span><span>{short(time / size)} {unit}</span>")  # fmt: skip


def tabbed(text: str, source: str) -> str:
    """Headings that are names of languages, one after the other, as tabs, and folded blocks as well."""
    text = FOLDED.sub(lambda found: f'=== "{found[1]}"\n\n' + textwrap.indent(found[2].strip("\n"), "    "), text)
    lines: list[str] = []
    depth = 0  # of the heading of the tab that is open
    for line, is_prose in outside_of_code(text):
        alone = re.fullmatch(r"\[.*\]\((\S+)\)", line) if depth and is_prose else None
        heading = re.match(r"(#{3,}) (.*)", line) if is_prose else None
        if heading and heading[2] in TABS:
            depth = len(heading[1])
            lines.append(f'=== "{heading[2]}"')
        elif depth and is_prose and (found := re.match(r"(#+) ", line)) and len(found[1]) <= depth:
            depth = 0
            lines.append(line)
        else:
            lines.append(f"    {line}" if depth and line else line)
        if alone:
            lines.append("")
            lines += [f"    {shown}" if shown else "" for shown in program(source, alone[1]).splitlines()]
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


def configuration(docs: Path, order: dict[str, dict[str, str]]) -> str:
    """`mkdocs.yml` with each star replaced by the pages of its folder that no other line names, and a
    section for each folder in it. A page that stands nowhere in it is an error."""
    text = (ROOT / "book/mkdocs.yml").read_text()
    for page in re.findall(r"[\w./-]+\.md\b", text):
        if not (docs / page).exists():
            print(f"book: mkdocs.yml leaves out {page}, which is not there", file=sys.stderr)
            text = re.sub(rf"^ *- {re.escape(page)}\n", "", text, flags=re.MULTILINE)
    lines = text.splitlines()

    def inside(start: str, folder: str) -> list[str]:
        found = order.get(folder) or {str(path.relative_to(docs)): "" for path in sorted((docs / folder).glob("*.md"))}
        unnamed = [(page, name.replace("`", "")) for page, name in found.items() if not re.search(rf"{page}\b", text)]
        entries = [f"{start} {json.dumps(name)}: {page}" if name else f"{start} {page}" for page, name in unnamed]
        for child in sorted(path for path in (docs / folder).iterdir() if path.is_dir()):
            name = str(child.relative_to(docs))
            if f"{name}/" not in text:
                title = (child / "index.md").read_text().splitlines()[0].removeprefix("# ")
                entries += [f"{start} {json.dumps(title)}:", *inside(f"    {start}", name)]
        return entries

    expanded = []
    for line in lines:
        start, _, folder = line.removesuffix("/*").rpartition(" ")
        expanded += inside(start, folder) if line.endswith("/*") else [line]
    text = "\n".join(expanded) + "\n"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    if lost := [page for page in sorted(pages) if page not in text and not page.startswith("source/")]:
        raise SystemExit(f"book: mkdocs.yml leads to no {', '.join(lost)}")
    return text


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    book = Book(folder / "docs")
    book.stage()
    (folder / "mkdocs.yml").write_text(configuration(folder / "docs", book.order))

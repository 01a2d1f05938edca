"""Writes the pages of the Python package, from its docstrings: package.py FOLDER

The package imports some names at their first use; this program imports them at once, so that pdoc sees
them. The constructors of named tuples are left out, because users do not call them, and so are
decorators.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pdoc
import pipework

MODULES = ["pipework", *(f"pipework.{name}" for name in ("atomic", "reqrep", "pipe", "fd", "logging", "multiprocessing"))]


def main(folder: Path) -> None:
    vars(pipework).update({name: getattr(pipework, name) for name in pipework.__all__})
    for module in map(import_module, MODULES):
        for thing in vars(module).values():
            if isinstance(thing, type) and hasattr(thing, "_fields"):
                thing.__new__.__doc__ = "@private"
    pdoc.render.configure(docformat="markdown", template_directory=Path(__file__).parent / "pdoc")
    pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

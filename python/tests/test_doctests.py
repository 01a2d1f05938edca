"""The examples of the compiled module's functions, which pytest does not look for in a library.
Those of its classes are found under their public names."""

from __future__ import annotations

import doctest

from pipework import _core


def test_doctests_of_functions_run() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    functions = [each for each in vars(_core).values() if callable(each) and not isinstance(each, type)]
    for function in functions:
        assert function.__doc__, f"{function.__name__} says nothing"
        for test in finder.find(function, function.__name__, module=False, globs={}):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 0


def test_every_public_name_has_a_docstring() -> None:
    silent = [
        f"{name}.{member}"
        for name, each in vars(_core).items()
        if isinstance(each, type)
        for member, what in vars(each).items()
        if not member.startswith("_") and not getattr(what, "__doc__", None)
    ]
    assert not silent

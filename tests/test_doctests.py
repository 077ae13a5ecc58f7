"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import bscrit

PACKAGE = Path(bscrit.__file__).parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples(module):
    loaded = import_module(module.removesuffix(".__init__"))
    assert doctest.testmod(loaded).failed == 0


def test_an_example_that_does_not_hold_fails():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(wrong, out=lambda _: None).failed == 1
    assert "bscrit.words" in WITH_EXAMPLES

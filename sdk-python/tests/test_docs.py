"""Every block of Python in the pages about this package runs, from the top, as a reader would try it."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import sys
import types
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PAGES = [("docs/sdk-python.md", 14), ("docs/http.md", 5), ("docs/telemetry.md", 1), ("sdk-python/README.md", 1), ("README.md", 1)]


@pytest.mark.parametrize(("page", "least"), PAGES)
def test_the_code_of_a_page_runs(run: Any, page: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    # A module, as a reader's file is one: dataclasses look theirs up.
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    names = vars(module)
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= least
    for block in blocks:
        # Line numbers of the page, to find what failed.
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        compiled = compile(code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        # Each block has a loop of its own: what was made in one is used in another.
        result = eval(compiled, names)
        if inspect.isawaitable(result):
            run(_awaited(result))


async def _awaited(result: Any) -> None:
    await result

"""Notebooks without Jupyter: the code cells of a file in this process, and what each displays.

    python tests/support/notebooks.py NOTEBOOK...

runs notebooks, each in an empty folder, and writes what their cells display into them. With
`--print` the cells' outputs are printed as JSON instead.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def code_cells(path: str | Path) -> list[dict[str, Any]]:
    """The code cells of a notebook."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    """The program of a cell."""
    return "".join(cell["source"])


def outputs(programs: list[str]) -> Iterator[list[Output]]:
    """Run programs one after another in one scope; what each prints and displays."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    for number, program in enumerate(programs, 1):
        body = ast.parse(program).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        out, err = io.StringIO(), io.StringIO()
        redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with redirected[0], redirected[1], warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show
            exec(compile(ast.Module(body, []), f"cell {number}", "exec"), scope)
            value = eval(_compiled(last, number), scope) if last else None
        found = [_stream(name, text) for name, text in (("stdout", out), ("stderr", err))]
        yield [*filter(None, found), *([_displayed(value, number)] if value is not None else [])]


def _compiled(last: ast.Expr, number: int) -> Any:
    return compile(ast.Expression(last.value), f"cell {number}", "eval")


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"{type(message).__name__}: {message}", file=sys.stderr)


def _stream(name: str, text: io.StringIO) -> Output | None:
    lines = text.getvalue().splitlines(keepends=True)
    return {"name": name, "output_type": "stream", "text": lines} if lines else None


def _displayed(value: Any, number: int) -> Output:
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    kind = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
    return {"data": data, **kind}


def main(words: list[str]) -> int:
    """Run notebooks and write or print their outputs."""
    os.environ["COLUMNS"] = "100"
    for name in (word for word in words if word != "--print"):
        path = Path(name).resolve()
        cells = code_cells(path)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            found = list(outputs([source(cell) for cell in cells]))
        if "--print" in words:
            print(json.dumps(found))
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        for number, (cell, shown) in enumerate(zip(code, found, strict=True), 1):
            cell["execution_count"], cell["outputs"] = number, shown
        text = json.dumps(content, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

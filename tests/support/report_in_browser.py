"""Checks of report pages in a real Chromium, in light and dark, at four widths and in print.

    python tests/support/report_in_browser.py --axe axe.min.js --out FOLDER PAGE.html [...]

Needs `chromium` (Debian's package), `pip install playwright` (its own browsers are not needed) and
axe-core from npm. Prints one line per problem and exits with 1 if there is any; screenshots and the
printed PDF are written into the folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = (1920, 1400, 768, 390)
SCHEMES = ("light", "dark")
PAPER = 718  # CSS pixels between the margins of an A4 page

OPEN_ALL = "for (const d of document.querySelectorAll('details')) d.open = true"
CUT_OFF = """() => {
  const found = [];
  const name = (e) => e.tagName.toLowerCase() + (e.className ? '.' + e.className : '') + ' in #' +
    (e.closest('section')?.id ?? '-') + ': ' + e.textContent.trim().slice(0, 40);
  const root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) found.push('the page scrolls sideways');
  for (const e of document.querySelectorAll('body *')) {
    if (['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (box.right > root.clientWidth + 1 || box.left < -1)
      found.push(`${name(e)} ends at ${Math.round(box.right)}`);
    else if (getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1)
      found.push(`${name(e)} is ${e.scrollWidth} wide in ${e.clientWidth}`);
  }
  return found;
}"""
UNSORTED = """() => {
  const found = [];
  const value = (cell) => cell.dataset.order ?? cell.textContent.trim();
  const number = (text) => parseFloat(text.replace(/,/g, '').replace('∞', 'Infinity'));
  for (const table of document.querySelectorAll('table.sortable')) {
    const rows = table.tBodies[0].rows.length;
    for (const button of table.querySelectorAll('thead button')) {
      const column = Number(button.dataset.column);
      const label = `${table.caption.textContent.slice(0, 40)}, column ${button.textContent}`;
      for (const way of ['ascending', 'descending']) {
        button.click();
        const head = button.closest('th');
        if (head.ariaSort !== way) found.push(`${label}: aria-sort is ${head.ariaSort}`);
        if (table.querySelectorAll('[aria-sort]').length !== 1) found.push(`${label}: two orders`);
        const all = [...table.tBodies[0].rows].map((row) => value(row.cells[column]));
        const numbers = all.map(number).filter((n) => !Number.isNaN(n));
        if (all.length !== rows) found.push(`${label}: rows were lost`);
        const sign = way === 'ascending' ? 1 : -1;
        if (numbers.some((n, i) => i && sign * n < sign * numbers[i - 1]))
          found.push(`${label}: not ${way}: ${all}`);
      }
    }
  }
  return found;
}"""


def problems(browser: Browser, path: Path, axe: str, out: Path) -> list[str]:
    """All problems of a page; screenshots and the printed page are written."""
    found: list[str] = []
    out.mkdir(parents=True, exist_ok=True)
    for scheme in SCHEMES:
        for width in WIDTHS:
            where = f"{path.parent.name}/{path.name} {width} {scheme}"
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = context.new_page()
            _listen(page, path, found, where)
            page.goto(path.as_uri())
            page.screenshot(path=out / f"{width}-{scheme}.png", full_page=True)
            page.evaluate(OPEN_ALL)
            found += [f"{where}: {text}" for text in page.evaluate(CUT_OFF)]
            found += [f"{where}: {text}" for text in page.evaluate(UNSORTED)]
            found += [f"{where}: axe: {text}" for text in _violations(page, axe)]
            context.close()
    return found + _printed(browser, path, out)


def _listen(page: Page, path: Path, found: list[str], where: str) -> None:
    """Note each console message, error and request."""

    def requested(request: Any) -> None:
        if request.url != path.as_uri() and not request.url.startswith("data:"):
            found.append(f"{where}: request {request.url}")

    page.on("request", requested)
    page.on("console", lambda message: found.append(f"{where}: console: {message.text}"))
    page.on("pageerror", lambda error: found.append(f"{where}: error: {error}"))


def _violations(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:120]} {node['any'][:1]}"
        for violation in result["violations"]
        for node in violation["nodes"][:3]
    ]


def _printed(browser: Browser, path: Path, out: Path) -> list[str]:
    """Print the page, with dark preferred by the screen, and measure it at the width of paper."""
    context = browser.new_context(viewport={"width": PAPER, "height": 1000}, color_scheme="dark")
    page = context.new_page()
    page.emulate_media(media="print")
    page.goto(path.as_uri())
    margins = dict.fromkeys(("top", "bottom", "left", "right"), "10mm")
    page.pdf(path=out / "print.pdf", format="A4", margin=margins)
    page.evaluate(OPEN_ALL)
    found = [f"{path.name} print: {text}" for text in page.evaluate(CUT_OFF)]
    context.close()
    return found


def main() -> int:
    """Check the pages named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--axe", type=Path, required=True, help="axe.min.js of axe-core")
    parser.add_argument("--out", type=Path, required=True, help="folder of the screenshots")
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        parser.error("there is no chromium: install Debian's package of this name.")
    axe = options.axe.read_text(encoding="utf-8")
    found: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for number, page in enumerate(options.pages):
            path = page.resolve()
            found += problems(browser, path, axe, options.out / f"{number}-{path.parent.name}")
        print(f"Chromium {browser.version}, {len(options.pages)} pages, {len(found)} problems")
        browser.close()
    print("\n".join(dict.fromkeys(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""The look of the report: readable on a screen by day and night, on a phone and on paper."""

CSS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --panel: #f5f7f9; --ink: #1f2328; --soft: #57606a; --line: #d8dee4;
  --accent: #0b62a4; --warn-ink: #7a3c00; --warn-paper: #fff3e0; --warn-line: #e8a34a;
  --reference: #8a5a00; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --panel: #1c2127; --ink: #e6e8eb; --soft: #a3acb5; --line: #343b44;
  --accent: #6cb6f0; --warn-ink: #ffd9a3; --warn-paper: #38270f; --warn-line: #b57a26;
  --reference: #e6b84d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; overflow-wrap: anywhere; }
main, header, footer { max-width: 1080px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; margin: 0 0 8px; }
h3 { font-size: 1rem; margin: 20px 0 6px; }
section { margin: 44px 0; scroll-margin-top: 12px; }
p { margin: 0 0 12px; max-width: 76ch; }
a { color: var(--accent); }
.soft, caption, figcaption, footer { color: var(--soft); font-size: 0.875rem; }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 14px 0; padding: 0; list-style: none; }
.chips li { background: var(--panel); border: 1px solid var(--line); border-radius: 999px;
  padding: 3px 12px; font-size: 0.875rem; }
.chips b { font-weight: 600; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; border-top: 1px solid var(--line);
  border-bottom: 1px solid var(--line); padding: 9px 0; margin-top: 18px; font-size: 0.9rem; }
nav a { text-decoration: none; }
nav a:hover, nav a:focus-visible { text-decoration: underline; }
.banner { background: var(--warn-paper); color: var(--warn-ink);
  border-left: 5px solid var(--warn-line); border-radius: 4px; padding: 11px 16px;
  margin: 18px 0; max-width: none; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px;
  margin: 0 0 22px; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 18px; }
.card .figure { font-size: 1.9rem; font-weight: 650; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.card .label { color: var(--soft); font-size: 0.875rem; }
.scroll { overflow-x: auto; margin: 10px 0 16px; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; padding: 0 0 8px; }
th, td { padding: 6px 8px; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; white-space: nowrap; }
.prose td { white-space: normal; min-width: 11em; }
caption { max-width: min(100ch, calc(100vw - 40px)); }
h3 .soft { font-weight: 400; margin-left: 6px; }
thead th { font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line); }
thead th[scope=colgroup] { text-align: center; border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
tbody tr:hover { background: var(--panel); }
.number { text-align: right; }
.spread { color: var(--soft); font-size: 0.8em; font-weight: 400; display: block; }
.reference th, .reference td { color: var(--reference); font-style: italic; }
.group td, .group th { border-top: 2px solid var(--line); }
figure { margin: 14px 0; }
figure img { max-width: 100%; height: auto; display: block; }
.wide img { min-width: 640px; }
.sheets { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr));
  gap: 14px 20px; }
.sheets figure { margin: 0; }
.sheets img { width: 100%; image-rendering: pixelated; border: 1px solid var(--line);
  border-radius: 4px; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 10px 24px;
  margin: 10px 0 18px; }
dt { color: var(--soft); font-size: 0.8125rem; }
dd { margin: 0; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 16px; overflow-x: auto; white-space: pre-wrap; font-size: 0.875rem; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px; margin: 8px 0; }
summary { cursor: pointer; font-weight: 600; font-size: 0.9375rem; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px; }
footer { border-top: 1px solid var(--line); padding-top: 14px; padding-bottom: 40px; }
@media (max-width: 640px) { main, header, footer { padding-left: 14px; padding-right: 14px; }
  h1 { font-size: 1.55rem; } section { margin: 34px 0; } }
@media print { nav { display: none; } body { font-size: 10.5pt; } section { margin: 22px 0; }
  details { border: none; padding: 0; } details::details-content { content-visibility: visible;
  display: block; height: auto; } .scroll { overflow: visible; } table { font-size: 8pt; }
  th, td { padding: 3px 5px; white-space: normal; } .spread { white-space: nowrap; }
  figure, tr, .card, .banner { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""

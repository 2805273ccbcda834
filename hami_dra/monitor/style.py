"""The style sheet of the page: light and dark, wide and narrow; contrasts are at least 4.5 to 1."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff;
  --panel: #f6f8fa; --track: #e3e8ee; --held: #79b8ff; --used: #0969da; --warn: #a84f00;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9ea7b3; --line: #3d444d;
  --paper: #0d1117; --panel: #161b22; --track: #2a313a; --held: #1f4d85; --used: #58a6ff;
  --warn: #e3963e; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 3rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 1.1rem; }
p { margin: .25rem 0; }
a { color: var(--used); }
code { font: .85em ui-monospace, Consolas, monospace; overflow-wrap: anywhere; }
.about, .soft { color: var(--soft); }
.trouble { margin: 1rem 0 0; padding: .6rem 1rem; border: 2px solid var(--bad);
  border-radius: .5rem; }
.trouble p { overflow-wrap: anywhere; }
.card { margin: 1.25rem 0 0; padding: 1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--panel); }
.card header { display: flex; flex-wrap: wrap; gap: .1rem .75rem; align-items: baseline; }
.tag { padding: 0 .5rem; border: 1px solid var(--line); border-radius: 1rem; color: var(--soft);
  font-size: .8rem; }
.bars { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr));
  gap: .25rem 1.5rem; margin: .5rem 0; }
.bar p { display: flex; justify-content: space-between; gap: 1rem; font-size: .9rem; }
.bar span { font-variant-numeric: tabular-nums; text-align: right; }
svg { display: block; width: 100%; height: .8rem; border-radius: .3rem; }
svg .track { fill: var(--track); } svg .held { fill: var(--held); } svg .used { fill: var(--used); }
svg .full { fill: var(--bad); }
table { width: 100%; margin: .75rem 0 0; border-collapse: collapse; table-layout: fixed;
  font-size: .92rem; }
thead th { width: 13%; } thead th:first-child { width: 30%; } thead th:nth-child(2) { width: 44%; }
th, td { padding: .4rem 1rem .5rem 0; border-top: 1px solid var(--line); text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
thead th { border-top: 0; color: var(--soft); font-weight: 400; font-size: .85rem; }
tbody th { font-weight: 600; } tbody th .soft { font-weight: 400; }
td { font-variant-numeric: tabular-nums; } td svg { height: .6rem; margin: .1rem 0 0; }
.warn { color: var(--warn); font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 1.25rem; margin: .75rem 0 0; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.mark { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem;
  vertical-align: -.1rem; }
.mark.held { background: var(--held); } .mark.used { background: var(--used); }
footer { margin: 2rem 0 0; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) { thead { display: none; } tr { display: block; padding: .5rem 0;
  border-top: 1px solid var(--line); }
  th, td { display: block; padding: .05rem 0; border: 0; }
  td[data-what]::before { content: attr(data-what) ": "; color: var(--soft); } }
@media print { .mark, rect { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
"""Cascading style sheet; nothing in it is loaded from anywhere."""

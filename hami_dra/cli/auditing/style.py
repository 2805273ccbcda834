"""The style sheet of the HTML report: light, dark and print; contrasts are at least 4.5 to 1."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff;
  --panel: #f6f8fa; --converts: #1a7f37; --webhook: #0969da; --person: #a84f00;
  --rejected: #b3261e; --converted: #5f6872; --before: #8250df; --after: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9ea7b3; --line: #3d444d;
  --paper: #0d1117; --panel: #161b22; --converts: #3fb950; --webhook: #58a6ff; --person: #e3963e;
  --rejected: #ff7b72; --converted: #8b949e; --before: #bc8cff; --after: #3fb950; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.5rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { margin: 0; font-size: 1.9rem; } h2 { margin: 2.5rem 0 .75rem; font-size: 1.3rem; }
p { margin: .5rem 0; }
code { font: .9em ui-monospace, Consolas, monospace; overflow-wrap: anywhere; }
.about { color: var(--soft); } .about code { color: var(--ink); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: .75rem; margin: 1.5rem 0; padding: 0; }
.figures div { padding: .75rem 1rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--panel); }
.figures .wide { grid-column: span 2; } .figures dt { color: var(--soft); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.35rem; font-weight: 600; }
.figures .converts dd { color: var(--converts); } .figures .webhook dd { color: var(--webhook); }
.figures .person dd { color: var(--person); } .figures .rejected dd { color: var(--rejected); }
.warning { padding: .75rem 1rem; border: 2px solid var(--rejected); border-radius: .5rem; }
.legend { display: flex; flex-wrap: wrap; gap: 1.25rem; margin: .5rem 0; padding: 0;
  list-style: none; }
.mark { display: inline-block; width: .85rem; height: .85rem; border-radius: .2rem;
  vertical-align: -.1rem; }
svg { display: block; width: 100%; min-width: 36rem; height: auto; font-size: 13px; }
svg text { fill: var(--ink); } svg .said { fill: var(--soft); }
svg .converts { fill: var(--converts); } svg .webhook { fill: var(--webhook); }
svg .person { fill: var(--person); } svg .rejected { fill: var(--rejected); }
svg .converted { fill: var(--converted); } svg .before { fill: var(--before); }
svg .after { fill: var(--after); }
.mark.converts { background: var(--converts); } .mark.webhook { background: var(--webhook); }
.mark.person { background: var(--person); } .mark.rejected { background: var(--rejected); }
.mark.converted { background: var(--converted); } .mark.before { background: var(--before); }
.mark.after { background: var(--after); }
table { width: 100%; margin: .5rem 0 1.5rem; border-collapse: collapse; font-size: .92rem; }
caption { padding: .25rem 0; color: var(--soft); text-align: left; }
th, td { padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; overflow-wrap: anywhere; min-width: 7.5rem; }
thead th { border-bottom: 2px solid var(--line); }
tbody th { min-width: 12rem; font-weight: 600; }
.number { min-width: 0; text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.outcome { font-weight: 600; white-space: nowrap; } .outcome.converts { color: var(--converts); }
.outcome.webhook { color: var(--webhook); } .outcome.person { color: var(--person); }
.outcome.rejected { color: var(--rejected); } .outcome.converted { color: var(--soft); }
td ul { margin: 0; padding-left: 1.1rem; }
tbody td:last-child:not(.number) { min-width: 16rem; }
.scrolls { overflow-x: auto; }
@media print { html { font-size: 10px; } body { max-width: none; padding: 0; font-size: 10px; }
  h2, .legend, caption, thead { break-after: avoid; } .scrolls { overflow: visible; }
  tr, svg, .figures div { break-inside: avoid; } thead { display: table-header-group; }
  .mark, rect, .figures div { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --panel: #fff;
  --converts: #1a7f37; --webhook: #0969da; --person: #a84f00; --rejected: #b3261e;
  --converted: #5f6872; --before: #8250df; --after: #1a7f37; } }
"""
"""Cascading style sheet; nothing in it is loaded from anywhere."""

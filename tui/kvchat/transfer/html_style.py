"""The style sheet of the exported page: calm, one accent, light and dark, fit to print.

The rule: it names no address; the page shows the same without a network.
"""

from __future__ import annotations

BAR_CELLS = 24
"""Cells in the bar that shows how a prompt was read."""

_LIGHT = """
--paper: #fcfbf9; --ink: #24221f; --soft: #6d6861; --line: #e5e0d8; --tint: #f3f0ea; --accent: #1f6f68;
--reused: #2f8f86; --new: #d19a45; --wasted: #c0573f;
--c: #7d776d; --k: #8a3b78; --s: #3d6f2f; --n: #a4551e; --f: #2a5ba0; --b: #1f6f68; --i: #2f6b2a; --d: #a83a32;
"""
_DARK = """
--paper: #171719; --ink: #e3e0da; --soft: #9b968d; --line: #313034; --tint: #202023; --accent: #7cc4bb;
--reused: #4da79d; --new: #d9a85c; --wasted: #d9745b;
--c: #8d877d; --k: #d59cc6; --s: #a3c48b; --n: #e0a878; --f: #8fb5ea; --b: #7cc4bb; --i: #97c98c; --d: #e58f85;
"""

_PAGE = """
*, *::before, *::after { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
body {
  margin: 0;
  font: 1.0625rem/1.62 "Source Serif 4", Charter, "Bitstream Charter", "Iowan Old Style", "Noto Serif", Georgia, serif;
  font-kerning: normal; text-rendering: optimizeLegibility; overflow-wrap: break-word;
}
main { max-width: 45rem; margin: 0 auto; padding: 4.5rem 1.5rem 6rem; }
h1, h2, h3, h4, h5, h6 { line-height: 1.25; text-wrap: balance; }
h1 { margin: 0 0 .6rem; font-size: 2.1rem; font-weight: 600; letter-spacing: -.015em; }
.conversation + .conversation { margin-top: 6rem; padding-top: 4rem; border-top: 1px solid var(--line); }
.conversation > header { margin-bottom: 2.75rem; }
.facts, .sums, .figures, .state, .stamp, .version, .time, .lang, summary, article > h2, .branch {
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
  font-size: .8125rem; line-height: 1.5; color: var(--soft); font-variant-numeric: tabular-nums;
}
.facts, .sums { margin: 0; }
.sums { color: var(--accent); }
article { margin: 0 0 2.5rem; }
article > h2 {
  display: flex; align-items: baseline; gap: .75em;
  margin: 0 0 .6rem; font-weight: 600; color: var(--ink);
}
.version { font-weight: 400; }
.time { margin-left: auto; font-weight: 400; }
.user { padding: 1rem 1.25rem 1.1rem; border-radius: .75rem; background: var(--tint); }
.user > h2 { color: var(--accent); }
.stamp { margin: 0 0 .5rem; }
.branch {
  margin: 4rem 0 2rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-weight: 600; color: var(--ink);
}
.state { margin: .9rem 0 0; padding-left: .8rem; border-left: 3px solid var(--new); color: var(--ink); }
.figures { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .75rem; margin: .9rem 0 0; }
.bar { display: inline-flex; height: .5rem; border-radius: .25rem; overflow: hidden; }
.bar > span { display: block; }
.reused { background: var(--reused); }
.new { background: repeating-linear-gradient(90deg, var(--new) 0 2px, transparent 2px 3px); }
.wasted { background: repeating-linear-gradient(90deg, var(--wasted) 0 1px, transparent 1px 3px); }
details { margin: 0 0 .8rem; }
summary { width: fit-content; cursor: pointer; border-radius: .25rem; }
summary:hover { color: var(--ink); }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
details > .text, .quoted {
  margin: .6rem 0 0; padding-left: 1rem;
  border-left: 2px solid var(--line); color: var(--soft);
}
details > .text { font-size: .9375rem; }
details.system { margin-bottom: 2rem; }
"""

_TEXT = """
.text > :first-child { margin-top: 0; }
.text > :last-child { margin-bottom: 0; }
.text p, .text ul, .text ol, .text blockquote, .text .code, .text .table { margin: .9em 0; }
.text h3, .text h4, .text h5, .text h6 { margin: 1.7em 0 .5em; font-weight: 600; }
.text h3 { font-size: 1.35rem; }
.text h4 { font-size: 1.15rem; }
.text h5, .text h6 { font-size: 1.0625rem; }
.text ul, .text ol { padding-inline-start: 1.6em; }
.text li { margin: .25em 0; }
.text li > ul, .text li > ol { margin: .25em 0; }
.text li::marker { color: var(--soft); }
.text blockquote {
  margin-inline: 0; padding-inline-start: 1rem;
  border-inline-start: 3px solid var(--line); color: var(--soft);
}
.text hr { margin: 2em 0; border: 0; border-top: 1px solid var(--line); }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: .18em; }
code, pre { font-family: ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { padding: .1em .3em; border-radius: .3em; background: var(--tint); font-size: .85em; }
.user code { background: var(--paper); }
.code { position: relative; }
pre {
  margin: 0; overflow-x: auto; font-size: .84375rem; line-height: 1.55;
  tab-size: 4; direction: ltr; text-align: left;
}
.code pre { padding: .9rem 1.1rem; border: 1px solid var(--line); border-radius: .5rem; background: var(--tint); }
.user .code pre { background: var(--paper); }
pre code { padding: 0; background: none; font-size: inherit; }
.user pre code { background: none; }
.lang {
  position: absolute; top: 1px; right: 1px; padding: .3rem .7rem; border-radius: .5rem; font-size: .6875rem;
  background: var(--tint);
}
.user .lang { background: var(--paper); }
.quoted { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto; font-size: .8125rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); text-align: start; vertical-align: top; }
th { font-weight: 600; }
.right { text-align: right; }
.center { text-align: center; }
.c { color: var(--c); font-style: italic; }
"""

_PRINT = """
@media print {
  @page { margin: 2cm; }
  :root { --paper: #fff; font-size: 10pt; }
  main { max-width: none; padding: 0; }
  article > h2, .text h3, .text h4, .figures, tr { break-inside: avoid; }
  article > h2, .text h3, .text h4 { break-after: avoid; }
  .conversation + .conversation { break-before: page; margin: 0; padding: 0; border: 0; }
  .user, .code pre, code, .lang, .user .lang { background: none; }
  .code { break-inside: avoid; }
  .user { padding: 0 0 0 1rem; border-left: 2px solid var(--line); border-radius: 0; }
  pre, .quoted { white-space: pre-wrap; max-height: none; }
  details::details-content { display: block; content-visibility: visible; height: auto; }
  .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .text a::after { content: " (" attr(href) ")"; color: var(--soft); font-size: .85em; overflow-wrap: anywhere; }
}
"""

_WORDS = "".join(f".{name} {{ color: var(--{name}); }}\n" for name in "ksnfbid")
_WIDTHS = "".join(f".w{cells} {{ width: {cells * 4}px; }}\n" for cells in range(1, BAR_CELLS + 1))

STYLE = (
    f":root {{ color-scheme: light dark; {_LIGHT}}}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK}}} }}\n"
    f"{_PAGE}{_TEXT}{_WORDS}{_WIDTHS}{_PRINT}"
)

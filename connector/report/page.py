"""The page of a report: one HTML text with everything in it.

The scripts of Vega are inlined once. The page's security policy allows these scripts and no network access. Values from
a store are data: they are escaped in HTML, and in scripts they are JSON without ``<``, ``>`` and ``&``.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5f6b7a; --line: #dfe4ea; --card: #ffffff; --ground: #f5f7f9;
  --accent: #1b6ca8; --good: #2a9d8f; --warn: #c77700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #98a4b3; --line: #2c3540; --card: #171d25;
  --ground: #0f141a; --accent: #6db3e8; --good: #57c7b8; --warn: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 44px 0 2px; overflow-wrap: anywhere; }
h3 { font-size: 14px; margin: 0; }
p.soft, td.soft, .soft { color: var(--soft); }
p.soft { margin: 2px 0 16px; overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.card, .panel, .scroll { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.card { padding: 12px 18px; min-width: 130px; }
.card b { display: block; font-size: 22px; font-weight: 650; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 16px; }
.panel { padding: 14px 16px; min-width: 0; break-inside: avoid; }
.panel p { margin: 0 0 8px; font-size: 13px; }
.wide { grid-column: 1 / -1; }
.chart { width: 100%; overflow-x: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 8px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: break-word; max-width: 260px; }
td:last-child { min-width: 140px; }
td:nth-child(2), td:nth-child(8), td:nth-child(9), td:nth-child(10) { white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.ok { color: var(--good); }
.attention { color: var(--warn); }
td.attention { min-width: 260px; max-width: 420px; }
select { font: inherit; max-width: calc(100% - 90px); padding: 3px 6px; margin-left: 8px; color: var(--ink);
  background: var(--ground); border: 1px solid var(--line); border-radius: 6px; }
a { color: var(--accent); }
@media print { body { background: white; } .panel, .card, .scroll { border-color: #bbb; } }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const [soft, line, ink] = dark ? ["#98a4b3", "#2c3540", "#e6eaf0"] : ["#5f6b7a", "#e6eaee", "#1d2733"];
const config = { background: null, font: "system-ui, DejaVu Sans, sans-serif", view: { stroke: null },
  axis: { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
    titleFontWeight: "normal" },
  legend: { labelColor: soft, titleColor: soft, titleFontWeight: "normal" }, title: { color: ink } };
const options = { renderer: "svg", actions: false, ast: true, config, tooltip: { theme: dark ? "dark" : "light" } };
const sized = (element, spec) => {
  const copy = structuredClone(spec);
  for (const panel of copy.vconcat || []) panel.width = Math.max(200, element.clientWidth - 90);
  return copy;
};
const draw = async (id, spec) => {
  const element = document.getElementById(id);
  const drawn = await vegaEmbed(element, sized(element, spec), options);
  element.dataset.drawn = "yes";
  return drawn;
};
const all = Object.entries(data.charts).map(([id, spec]) => draw(id, spec));
for (const [id, keys] of Object.entries(data.lifelines)) {
  const chooser = document.getElementById("choose-" + id);
  let before = null;
  const show = async () => {
    if (before) before.finalize();
    before = await draw(id, keys[chooser.selectedIndex].spec);
  };
  for (const { key } of keys) chooser.add(new Option(key));
  chooser.addEventListener("change", show);
  all.push(show());
}
Promise.all(all).then(() => { document.body.dataset.ready = "yes"; });
"""


def page(
    title: str,
    subtitle: str,
    cards: Sequence[tuple[str, str]],
    overview: str,
    sections: Sequence[str],
    charts: dict[str, Any],
    lifelines: dict[str, list[dict[str, Any]]],
    bundle: str,
) -> str:
    """The whole page; ``charts`` and ``lifelines`` by the id of the element they are drawn in."""
    shown = "".join(
        f'<div class="card"><b>{text(value)}</b><span class="soft">{text(name)}</span></div>' for name, value in cards
    )
    figures = script_json({"charts": charts, "lifelines": lifelines})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{text(title)}</h1>
<p class="soft">{text(subtitle)}</p>
<div class="cards">{shown}</div>
{overview}
{"".join(sections)}
</main>
<script type="application/json" id="figures">{figures}</script>
<script>{bundle.replace("</script", "<" + chr(92) + "/script")}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""  # fmt: skip


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int], status: int) -> str:
    """A table of texts; columns ``numbers`` are aligned right, column ``status`` is coloured by its first word."""
    head = "".join(f"<th>{text(name)}</th>" for name in header)
    body = []
    for row in rows:
        cells = []
        for index, cell in enumerate(row):
            kind = "number" if index in numbers else ""
            if index == status:
                kind = "ok" if cell == "ok" else "attention"
            cells.append(f'<td class="{kind}">{text(cell)}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def section(anchor: str, name: str, about: str, panels: Sequence[str]) -> str:
    return (
        f'<section id="{anchor}"><h2>{text(name)}</h2><p class="soft">{text(about)}</p>'
        f'<div class="grid">{"".join(panels)}</div></section>'
    )


def panel(element: str, title: str, about: str, *, chooser: bool = False) -> str:
    """The element of a chart; a lifeline is wide and has a list of keys to choose from."""
    choose = f'<select id="choose-{element}" aria-label="key"></select>' if chooser else ""
    return (
        f'<div class="panel{" wide" if chooser else ""}"><h3>{text(title)}{choose}</h3>'
        f'<p class="soft">{text(about)}</p>'
        f'<div class="chart" id="{element}"></div></div>'
    )


def text(value: object) -> str:
    """``value`` as text in HTML, also inside an attribute."""
    return html.escape(str(value), quote=True)


def script_json(value: Any) -> str:
    """JSON that cannot end or change the script element around it."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written

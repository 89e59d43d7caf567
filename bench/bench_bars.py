# SPDX-License-Identifier: Apache-2.0
"""Pictures of horizontal bars, as SVG: names before the bars and figures after them, so that there is no legend
and no axis to read. tally's bars are dark and all others light, in grey too. Each picture has a title and a
description for screen readers. Measures nothing."""

import html

OURS, THEIRS = "#1b5e9e", "#b9c4cf"
ROW, GAP, HEAD = 20, 8, 40  # heights: of a bar with its space, between groups, of a panel's heading
LETTER, FIGURE = 7.4, 65    # widths: of a letter of a name, of the figures

STYLE = ("<style>text { font: 12px sans-serif; fill: #333 } .head { font-weight: bold; fill: #111 } "
         f".own {{ font-weight: bold; fill: {OURS} }}</style>")


def panel(x, width, title, groups):
    """One panel: groups of (name, milliseconds, is ours), with a gap between groups."""
    most = max(ms for group in groups for _, ms, _ in group)
    start = round(16 + LETTER * max(len(name) for group in groups for name, _, _ in group))
    out = [f'<text x="{x}" y="26" class="head">{html.escape(title)}</text>']
    y = HEAD
    for group in groups:
        for name, ms, ours in group:
            length = max(2, (width - start - FIGURE) * ms / most)
            kind = "own" if ours else "label"
            out.append(f'<text x="{x + start - 8}" y="{y + 13}" class="{kind}" text-anchor="end">'
                       f'{html.escape(name)}</text>'
                       f'<rect x="{x + start}" y="{y + 1}" width="{length:.1f}" height="16" '
                       f'fill="{OURS if ours else THEIRS}"/>'
                       f'<text x="{x + start + 5 + length:.1f}" y="{y + 13}" class="{kind}">{ms:.0f} ms</text>')
            y += ROW
        y += GAP
    return out, y


def picture(title, panels, note):
    """Panels of (width, heading, groups) side by side; a note below them."""
    lines, x, bottom = [], 10, 0
    for width, heading, groups in panels:
        drawn, end = panel(x, width, heading, groups)
        lines += drawn
        x += width + 10
        bottom = max(bottom, end)
    height = bottom + 26
    described = "; ".join(heading + ": " + ", ".join(f"{name} {ms:.0f} ms" for group in groups for name, ms, _ in group)
                          for _, heading, groups in panels)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x} {height}" width="{x}" height="{height}" '
            'role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{html.escape(title)}</title>\n'
            f'<desc id="desc">{html.escape(note)} {html.escape(described)}.</desc>\n{STYLE}\n'
            f'<rect width="{x}" height="{height}" fill="white"/>\n' + "\n".join(lines) +
            f'\n<text x="10" y="{bottom + 14}">{html.escape(note)}</text>\n</svg>\n')

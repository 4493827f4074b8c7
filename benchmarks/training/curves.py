"""Loss curves of records as one SVG: a row a task, a column a member, the two runs over each other."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP = 168, 120, 44, 40
PITCH_X, PITCH_Y = WIDTH + 20, HEIGHT + 44
COLOURS = {"float64": "#c2410c", "bfloat16": "#1d4ed8"}
KEYS = {
    "bfloat16": "bfloat16, on the kernels named and no others",
    "float64": "float64, on torch, same seed",
}
NAMED = {"native": " (native)", "triton": " (Triton)", "": ""}
#: Panels side by side.
ACROSS = 5


def draw(records: list[dict[str, Any]]) -> str:
    """The text of an SVG file. Every panel of a row has one scale; each step's loss is a point."""
    runs = [
        one | {"path": record["settings"]["path"]}
        for record in records
        for one in record["runs"]
        if "loss" in one
    ]
    members = list(dict.fromkeys(one["member"] for one in runs))
    tasks = list(dict.fromkeys(one["task"] for one in runs))
    bands = [members[at : at + ACROSS] for at in range(0, len(members), ACROSS)]
    rows = [(band, task) for band in bands for task in tasks]
    width = LEFT + PITCH_X * min(ACROSS, max(1, len(members)))
    height = TOP + PITCH_Y * max(1, len(rows)) + 10
    where = dict.fromkeys(f"{record['device']}, {record['date']}" for record in records)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10" fill="#333">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="14" font-size="12">Loss by step on {escape("; ".join(where))}</text>',
    ]
    x = LEFT
    for mode, label in KEYS.items():
        lines.append(
            f'<path d="M{x} 24h16" stroke="{COLOURS[mode]}" fill="none" '
            f'stroke-width="{_stroke(mode)}"/><text x="{x + 20}" y="27">{label}</text>'
        )
        x += 30 + 6 * len(label)
    for row, (band, task) in enumerate(rows):
        shown = [one for one in runs if one["task"] == task]
        top = max(max(one["loss"]) for one in shown if one["member"] in band)
        for column, member in enumerate(band):
            at = LEFT + column * PITCH_X, TOP + 20 + row * PITCH_Y
            chosen = [one for one in shown if one["member"] == member]
            if chosen:
                lines += _panel(chosen, f"{member}, {task}{NAMED[chosen[0]['path']]}", at, top)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _stroke(mode: str) -> float:
    return 2.6 if mode == "float64" else 1.0


def _panel(runs: list[dict[str, Any]], title: str, at: tuple[int, int], top: float) -> list[str]:
    x, y = at
    lines = [
        f'<text x="{x}" y="{y - 6}">{escape(title)}</text>',
        f'<path d="M{x} {y}v{HEIGHT}h{WIDTH}" stroke="#999" fill="none"/>',
    ]
    for part in (0.0, 0.5, 1.0):
        here = y + HEIGHT * (1 - part)
        lines.append(
            f'<text x="{x - 4}" y="{here + 3:.0f}" text-anchor="end">{top * part:.1f}</text>'
        )
    steps = len(runs[0]["loss"])
    lines.append(
        f'<text x="{x + WIDTH}" y="{y + HEIGHT + 12}" text-anchor="end">{steps} steps</text>'
    )
    for one in sorted(runs, key=lambda found: found["mode"] != "float64"):
        points = " ".join(
            f"{x + WIDTH * step / max(1, steps - 1):.1f},{y + HEIGHT * (1 - loss / top):.1f}"
            for step, loss in enumerate(one["loss"])
        )
        lines.append(
            f'<polyline points="{points}" stroke="{COLOURS[one["mode"]]}" fill="none" '
            f'stroke-width="{_stroke(one["mode"])}"/>'
        )
    return lines

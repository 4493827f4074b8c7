"""The sweep's record as a page and a plot: pure functions of the record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any

Record = dict[str, Any]

_STYLE = """<style>
text { font: 12px sans-serif; fill: #24292f; }
.line { stroke: #8c959f; stroke-width: 1; }
.trip { stroke: #24292f; stroke-width: 2; }
.honest { fill: #0969da; } .defect { fill: #cf222e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .trip { stroke: #e6edf3; }
  .honest { fill: #58a6ff; } .defect { fill: #ff7b72; }
}
</style>"""
#: Decades that the plot shows; what lies beyond stands at its edge.
_LEFT, _RIGHT = -3, 5
_DECADE, _MARGIN, _ROW = 80, 150, 24


def misplaced(record: Record) -> list[tuple[str, str, str, float | None]]:
    """(gate, "honest" or "defect", case, times the trip point) of what lies on the wrong side."""
    found = []
    for row in record["gates"]:
        for case in row["honest"]:
            if case["convicted"]:
                found.append((row["gate"], "honest", case["name"], case["over"]))
        for case in row["defects"]:
            if case["convicted"] < record["seeds"]:
                found.append((row["gate"], "defect", case["name"], case["over"]))
    return found


def page(record: Record) -> str:
    """The page, in Markdown."""
    return "\n".join(
        [*_head(record), *_margins(record), *_wrong(record), *_gap(record), *_all(record)]
    )


def _head(record: Record) -> Iterator[str]:
    yield from (
        "# How far apart honest noise, the bounds and real defects lie",
        "",
        f"Measured by `adjudge calibrate` on {record['date']} ({record['machine']}), on "
        f"{record['seeds']} seeds of the inputs for each gate with a derived bound. Distances are in "
        "envelopes: the error of an element over the spread that the oracle derives for it, and the "
        "same in the mean square. The trip point is the smallest injected error that the judge "
        "convicts, by bisection, of one element and of all. A case's place is its distance over the "
        "nearer of the two: under 1 it is acquitted, unless the answer shows without any bound what it "
        "was kept in (marked exact).",
        "",
        "![places of honest cases and of defects](calibration.svg)",
        "",
    )


def _margins(record: Record) -> Iterator[str]:
    yield "| gate | regime | trip: one element | trip: mean square | trip / noise | defect / trip |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in record["gates"]:
        yield (
            f"| [{row['gate']}](gates/{row['gate']}.md) | {row['regime']} | "
            f"{_number(row['trip_element'])} | {_number(row['trip_mean_square'])} | "
            f"{_number(row['above_noise'])} | {_number(row['below_defect'])} |"
        )
    yield ""


def _wrong(record: Record) -> Iterator[str]:
    wrong = misplaced(record)
    yield "## On the wrong side"
    yield ""
    if not wrong:
        yield "None: every honest case is inside, every defect outside."
    for gate, kind, name, over in wrong:
        what = "is convicted" if kind == "honest" else "is not convicted on every seed"
        article = "an honest case" if kind == "honest" else "a defect"
        yield f"- {gate}: {name}, {article}, {what} (at {_number(over)} of the trip point)."
    yield ""


def _gap(record: Record) -> Iterator[str]:
    yield "## Accumulators and factors of few bits"
    yield ""
    yield (
        "These are separated by the exact lattice and the gap test of `narrow-accumulator`, not by a "
        "margin: convicted or not, at each number of significant bits (float32 has 24, tf32 and "
        "float16 11, bfloat16 8)."
    )
    bits = sorted({g["bits"] for g in record["gap"]})
    yield ""
    yield f"| | {' | '.join(map(str, bits))} |"
    yield f"| --- |{' --- |' * len(bits)}"
    for what in ("accumulator", "factors"):
        seen = {g["bits"]: g["convicted"] for g in record["gap"] if g["what"] == what}
        yield f"| {what} | {' | '.join('convicted' if seen[b] else 'passes' for b in bits)} |"
    yield ""


def _all(record: Record) -> Iterator[str]:
    yield "## Every case"
    yield ""
    yield "Of honest cases the largest of all seeds, of defects the smallest."
    for row in record["gates"]:
        yield f"\n### {row['gate']}\n\nOn {row['probe']}.\n"
        yield "| case | | largest element | mean square | times the trip point |"
        yield "| --- | --- | --- | --- | --- |"
        for kind in ("honest", "defects"):
            for case in row[kind]:
                numbers = (case["element"], case["mean_square"], case["over"])
                told = " | ".join(map(_number, numbers)) + (" (exact)" if case["exact"] else "")
                yield f"| {case['name']} | {kind} | {told} |"
    yield ""


def plot(record: Record) -> str:
    """The plot, as SVG: one line a gate, the trip point at 1, a logarithmic axis."""
    width = _MARGIN + _DECADE * (_RIGHT - _LEFT) + 20
    height = _ROW * (len(record["gates"]) + 2) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Times the trip point, by gate: honest cases left of 1, defects right of it">',
        _STYLE,
    ]
    bottom = _ROW * (len(record["gates"]) + 1)
    for decade in range(_LEFT, _RIGHT + 1):
        x = _place(10.0**decade)
        kind = "trip" if decade == 0 else "line"
        dashes = "" if decade == 0 else ' stroke-dasharray="1 4"'
        lines.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="8" y2="{bottom}"{dashes}/>')
        words = "trip" if decade == 0 else f"1e{decade}"
        lines.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{words}</text>')
    for number, row in enumerate(record["gates"]):
        y = _ROW * (number + 1)
        lines.append(f'<text x="{_MARGIN - 12}" y="{y + 4}" text-anchor="end">{row["gate"]}</text>')
        for kind, css in (("honest", "honest"), ("defects", "defect")):
            for case in row[kind]:
                x = _place(math.inf if case["over"] is None else case["over"])
                title = f"{escape(case['name'])}: {_number(case['over'])}"
                lines.append(
                    f'<circle class="{css}" cx="{x}" cy="{y}" r="4"><title>{title}</title></circle>'
                )
    words = "blue: honest, red: real defects; times the smallest error that convicts"
    lines.append(f'<text x="{_MARGIN}" y="{bottom + 34}">{words}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _place(value: float) -> float:
    decade = math.log10(value) if 0 < value < math.inf else math.inf if value > 0 else -math.inf
    return round(_MARGIN + _DECADE * (min(max(decade, _LEFT), _RIGHT) - _LEFT), 1)


def _number(value: float | None) -> str:
    return "another class of value" if value is None else f"{value:.3g}"

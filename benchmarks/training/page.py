"""docs/training.md and docs/training.svg, from the record beside them.

    python benchmarks/training/page.py [FILE ...]

Runs of the given files, each a record or a list, first go into docs/training.json, in place of earlier
ones of the same member and task.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from curves import draw

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Steps whose mean is shown.
LAST = 20
PATHS = {
    "native": "native",
    "triton": "portable, on Triton",
    "": "whichever ran",
}

Record = dict[str, Any]


def merge(held: list[Record], more: list[Record]) -> list[Record]:
    """The records with the new ones' runs in place of the earlier ones of the same member and task;
    what was run alike is one record."""
    anew = {(run["member"], run["task"]) for record in more for run in record["runs"]}
    kept = []
    for record in held:
        runs = [run for run in record["runs"] if (run["member"], run["task"]) not in anew]
        if runs:
            kept.append(record | {"runs": runs})
    found: list[Record] = []
    for record in [*kept, *more]:
        facts = record | {"runs": []}
        same = next((one for one in found if one | {"runs": []} == facts), None)
        if same is None:
            found.append(record)
        else:
            same["runs"] = [*same["runs"], *record["runs"]]
    return found


def command(record: Record) -> str:
    """What wrote the record."""
    settings = record["settings"]
    members = dict.fromkeys(run["member"] for run in record["runs"])
    words = ["python benchmarks/training/train.py"]
    words += [f"--{settings['path']}"] if settings["path"] else []
    words += [f"--members {' '.join(members)}"]
    words += [f"--{name} {settings[name]}" for name in ("steps", "pairs", "vocabulary")]
    return " ".join(words)


def page(records: list[Record]) -> str:
    """The text of the page, for records without a failed run."""
    sizes = {
        "{layers} layers, {heads} heads of {head}, {batch} sequences of {length} tokens a step".format(
            **record["settings"]
        )
        for record in records
    }
    lines = [
        "# Training",
        "",
        "Small language models, each with one member's layer, trained twice from one seed: in bfloat16 "
        "with every fallback from the kernels named below an error, forward and backward, and in "
        "float64 throughout, on torch. A loss or gradient that is not finite ends in an error; none "
        f"did. {'; '.join(sorted(sizes))}.",
        "",
    ]
    for record in records:
        lines += [
            f"- {PATHS[record['settings']['path']]}: `{command(record)}`, {record['date']}, "
            f"{record['device']}, torch {record['torch']}"
        ]
    lines += [
        "",
        f"| member, task | kernels | loss of the last {LAST} steps, bfloat16 / float64 | right answers "
        "| greatest gap of the two at one step | gradient's error after the last step |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for record in records:
        lines += _rows(record)
    return "\n".join(
        [
            *lines,
            "",
            "The gradient's error is that of the whole model under bfloat16 autocast, relative to the "
            "float64 gradient at the same weights.",
            "",
            "![Loss curves](training.svg)",
            "",
        ]
    )


def _rows(record: Record) -> list[str]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in record["runs"]:
        found.setdefault((run["member"], run["task"]), {})[run["mode"]] = run
    rows = []
    for (member, task), pair in found.items():
        narrow, exact = pair["bfloat16"], pair["float64"]
        loss = " / ".join(f"{_mean(run['loss']):.4f}" for run in (narrow, exact))
        right = " / ".join(f"{_mean(run['right']):.3f}" for run in (narrow, exact))
        gap = max(abs(a - b) for a, b in zip(narrow["loss"], exact["loss"], strict=True))
        error = f"{narrow['gradient_error']:.1e}".replace("e-0", "e-")
        kernels = PATHS[record["settings"]["path"]]
        rows.append(
            f"| {member}, {task} | {kernels} | {loss} | {right} | {gap:.3f} | {error} |",
        )
    return rows


def _mean(values: list[float]) -> float:
    return sum(values[-LAST:]) / len(values[-LAST:])


def main(given: list[str]) -> None:
    place = DOCS / "training.json"
    held = json.loads(place.read_text(encoding="utf-8"))
    more: list[Record] = []
    for name in given:
        read = json.loads(Path(name).read_text(encoding="utf-8"))
        more += read if isinstance(read, list) else [read]
    failed = [run for record in more for run in record["runs"] if "error" in run]
    if failed:
        raise SystemExit(
            "\n".join(f"{run['member']}, {run['task']}: {run['error']}" for run in failed)
        )
    records = merge(held, more)
    place.write_text(json.dumps(records, separators=(",", ":")) + "\n", encoding="utf-8")
    place.with_suffix(".md").write_text(page(records), encoding="utf-8")
    place.with_suffix(".svg").write_text(draw(records), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

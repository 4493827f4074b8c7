"""Writes what is generated in this folder: pages on the gates and on the records, the golden matrix.

    python docs/generate.py [--matrix]

The matrix takes two minutes and is written only when asked for. The tests fail when a file is stale.
"""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path

from adjudge.contract import PARTS, Contract
from adjudge.gates import GATES
from adjudge.record import json_schema

HERE = Path(__file__).resolve().parent


def page(contract: Contract) -> str:
    """One gate's page, from its contract."""
    lines = [f"# {contract.identifier}", "", f"A kernel that {contract.summary}.", ""]
    for part in PARTS[1:]:
        lines += [f"**{part.capitalize()}.** {getattr(contract, part)}", ""]
    lines += [f"Violations are established as {contract.kind.value}.", ""]
    if contract.codes:
        lines += [f"Also known as {', '.join(contract.codes)}.", ""]
    folder = contract.identifier.replace("-", "_")
    lines += [
        "The calibration pair: "
        f"[conforming](../../src/adjudge/calibration/{folder}/conforming.py), "
        f"[violating](../../src/adjudge/calibration/{folder}/violating.py).",
        "",
    ]
    return "\n".join(lines)


def index(contracts: list[Contract]) -> str:
    rows = [f"| [{c.identifier}]({c.identifier}.md) | {c.summary} |" for c in contracts]
    return "\n".join(["# The gates", "", "| gate | a kernel that |", "| --- | --- |", *rows, ""])


def generated() -> dict[Path, str]:
    """Every generated file but the matrix, and its text."""
    contracts = [g.CONTRACT for g in GATES]
    files = {HERE / "gates" / f"{c.identifier}.md": page(c) for c in contracts}
    files[HERE / "gates" / "README.md"] = index(contracts)
    files[HERE / "audits" / "README.md"] = runpy.run_path(str(HERE / "audits" / "page.py"))[
        "page"
    ]()
    files[HERE / "verdict.schema.json"] = json.dumps(json_schema(), indent=2) + "\n"
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", action="store_true")
    options = parser.parse_args()
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if options.matrix:
        from adjudge.judge.selfcheck import selfcheck, to_json

        (HERE / "golden-matrix.json").write_text(to_json(selfcheck()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Writes what is generated in this folder: pages on gates, contracts and records, schemas, the golden
matrix.

    python docs/generate.py [--matrix] [--signatures] [--incidents]

The matrix and the signatures of the published classes are measured, which takes two minutes each, and
are written only when asked for. The tests fail when a file is stale.
"""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path

from adjudge import incidents
from adjudge.contract import PARTS, Contract
from adjudge.contracts import classes, file, waivers
from adjudge.contracts.promises import present, promises
from adjudge.gates import GATES
from adjudge.record import json_schema

HERE = Path(__file__).resolve().parent

#: How to write a contract; `tests/contracts` runs the example.
INTRODUCTION = """# Contracts

A contract says what a library's owner promises for one operation, in eight parts. It is a TOML file:

```sh
adjudge contract init reference.py -o contract.toml    # drafts one from the reference
adjudge contract check contract.toml --reference reference.py
adjudge explain contract.toml
adjudge verify candidate.py --reference reference.py --contract contract.toml
```

A part that is only words may be a string. What is declared beyond words is judged, and the report
says how; what no gate here judges yet is said too. The smallest contract:

```toml
schema = 1
identifier = "softmax"
scope = "float32 rows of the width that the reference draws"
precondition = "Inputs are drawn as the reference draws them."
postcondition = "Every row is its softmax."
tolerance = "The error that an honest float32 kernel can make."
oracle = "The reference in float64."
measurement = "Every gate."
signature = "As the gate that finds it reports it."
```

A part that declares something is a table. This one promises what a library may promise of an operation
that writes into memory of the caller's, on operands of eight bits:

```toml
schema = 1
identifier = "scaled-product"
oracle = { words = "The reference in float64.", reference = "reference.py" }
measurement = { words = "These gates.", gates = ["wrong-value", "shape-dependent"] }
signature = "As the gate that finds it reports it."

[scope]
words = "Products of int8 operands, with a float32 scale for each."
dtypes = ["float32"]
layouts = ["contiguous", "sliced"]

[scope.sizes]
rows = "1..4096"
inner = "16..4096 by 16"
columns = [64, 128, 256]

[[scope.quantised]]
tensor = "args[0]"
stored = "int8"
scale = "args[1]"

[[scope.quantised]]
tensor = "output"
stored = "int8"
rounding = "either"

[[scope.refusals]]
exception = "ValueError"
message = "contiguous"
layouts = ["sliced"]

[precondition]
words = "Scales are positive."
values = "finite"
ranges = { "args[1]" = [1e-3, 1e3] }

[postcondition]
words = "The memory that is given holds the product, rounded to int8."
destinations = ["out"]
batch_invariant = true
determinism = "bitwise"
subnormals = "either"
resources = { chips = ["sm_90"], spills = 0, memory = 1.5 }

[tolerance]
words = "Sums in float32, from operands of eight bits."
regime = "fp32"

[[tolerance.looser]]
output = "output"
atol = 2.0
reason = "Both scales are folded into one, which may move a sum over two steps of int8."
```

All fields, and what each means: [contract.schema.json](../contract.schema.json). A known violation is
accepted in a file of waivers ([waivers.schema.json](../waivers.schema.json)), by gate and signature as
the verdict's record has them:

```toml
schema = 1

[[waiver]]
gate = "drops-nonfinite"
signature = "class"
reason = "Rows of NaN are cut before this operation, see the loader."
expires = 2027-06-30
candidate = "softmax_v2"   # softmax_v2.py; any candidate if not given
```

`adjudge verify candidate.py --reference reference.py --waivers waivers.toml` shows what is accepted, and
ends with 2 where a waiver has expired or matches nothing any more.
"""


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


def class_page(name: str, measured: dict[str, classes.Signature]) -> str:
    """One published class's page, from its contract's file."""
    terms, gate = classes.published(name).terms, classes.carrier(name)
    lines = [f"# {name}", "", f"{terms.summary[0].upper()}{terms.summary[1:]}.", ""]
    for part in PARTS[1:]:
        lines += [f"**{part.capitalize()}.** {getattr(terms, part).words}", ""]
    for promise in promises(terms):
        if promise.name != "measurement.gates":
            waits = f"judged by no gate here yet: {promise.waits}" if promise.waits else ""
            judged = "; ".join(filter(None, (promise.judged, waits)))
            lines += [f"Declared: `{promise.name}`, {promise.words} ({judged}).", ""]
    source = f"../../src/adjudge/contracts/published/{name}.toml"
    lines += [f"The contract's file: [{name}.toml]({source}).", ""]
    pair = classes.sources(name)
    if pair is None:
        return "\n".join([*lines, f"Waits for the gate `{gate}`, and for its pair with it.", ""])
    lines += [
        f"Judged by [{gate}](../gates/{gate}.md) on these implementations of one reference.",
        "",
    ]
    for half in ("reference", "conforming", "violating"):
        lines += [
            f"## {half.capitalize()}",
            "",
            "```python",
            getattr(pair, half).strip(),
            "```",
            "",
        ]
    lines += ["## Measured", ""]
    if name in measured:
        found = measured[name]
        lines += [f"Measured on the conforming one: {found.conforming}. On the violating one:", ""]
        lines += ["| | |", "| --- | --- |"]
        lines += [
            f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in found.violating
        ]
        lines.append("")
    return "\n".join(lines)


def incident_page(incident: incidents.Incident, found: classes.Signature) -> str:
    """One incident's page, from its contract's file, its pair and what judging the pair showed."""
    terms = incident.contract.terms
    folder = f"../../src/adjudge/incidents/{incident.folder}"
    lines = [f"# {incident.title}", "", incident.story, ""]
    lines += ["Documented at:", "", *(f"- <{source}>" for source in incident.sources), ""]
    lines += [f"What it breaks: {terms.summary}.", ""]
    if incident.breaks:
        lines[-2] += f" This is [{incident.breaks}](../contracts/{incident.breaks}.md)."
    for part in PARTS[1:]:
        lines += [f"**{part.capitalize()}.** {getattr(terms, part).words}", ""]
    halves = ", ".join(f"[{half}]({folder}/{half}.py)" for half in ("conforming", "violating"))
    lines += [
        f"The [contract's file]({folder}/contract.toml), the [reference]({folder}/reference.py), and "
        f"its two implementations: {halves}. To judge one, on any machine:",
        "",
        "```",
        f"cd src/adjudge/incidents/{incident.folder}",
        "adjudge verify violating.py --reference reference.py --contract contract.toml",
        "```",
        "",
        f"Measured by [{found.gate}](../gates/{found.gate}.md) on the conforming one: "
        f"{found.conforming}. On the violating one:",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in found.violating),
        "",
    ]
    return "\n".join(lines)


def incident_index() -> str:
    rows = [
        f"| [{i.title}]({i.name}.md) | {i.contract.terms.summary} | {i.gate} |"
        for i in incidents.INCIDENTS
    ]
    head = ["# Incidents", "", "| what happened | the contract it breaks | gate |"]
    return "\n".join([*head, "| --- | --- | --- |", *rows, ""])


def class_index() -> str:
    rows = [
        f"| [{name}]({name}.md) | {classes.published(name).terms.summary} | {classes.carrier(name)}"
        f"{'' if present([classes.carrier(name)]) else ' (not here yet)'} |"
        for name in classes.CLASSES
    ]
    head = [
        INTRODUCTION,
        "## The published classes",
        "",
        "| class | what it asks | gate |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *rows, ""])


def generated() -> dict[Path, str]:
    """Every generated file but the matrix, and its text."""
    contracts = [g.CONTRACT for g in GATES]
    files = {HERE / "gates" / f"{c.identifier}.md": page(c) for c in contracts}
    files[HERE / "gates" / "README.md"] = index(contracts)
    files[HERE / "audits" / "README.md"] = runpy.run_path(str(HERE / "audits" / "page.py"))[
        "page"
    ]()
    fla = runpy.run_path(str(HERE / "audits" / "fla_page.py"))
    if fla["RECORD"].exists():
        files[HERE / "audits" / "fla-backward.md"] = fla["page"]()
    agreement = runpy.run_path(str(HERE / "audits" / "agreement_page.py"))
    if agreement["CUDA"].exists():
        files[HERE / "audits" / "agreement.md"] = agreement["page"]()
    files[HERE / "faults.md"] = runpy.run_path(str(HERE / "fault_page.py"))["page"]()
    measured = classes.measured()
    for name in classes.CLASSES:
        files[HERE / "contracts" / f"{name}.md"] = class_page(name, measured)
    files[HERE / "contracts" / "README.md"] = class_index()
    seen = incidents.measured()
    for incident in incidents.INCIDENTS:
        files[HERE / "incidents" / f"{incident.name}.md"] = incident_page(
            incident, seen[incident.name]
        )
    files[HERE / "incidents" / "README.md"] = incident_index()
    for stem, schema in (
        ("verdict", json_schema()),
        ("contract", file.schema()),
        ("waivers", waivers.schema()),
    ):
        files[HERE / f"{stem}.schema.json"] = json.dumps(schema, indent=2) + "\n"
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--signatures", action="store_true")
    parser.add_argument("--incidents", action="store_true")
    options = parser.parse_args()
    if options.signatures:
        from adjudge.worker.client import Zygote

        with Zygote.start() as zygote:
            found = {name: classes.measure(name, zygote) for name in classes.CLASSES}
        text = classes.to_json({name: s for name, s in found.items() if s is not None})
        (classes.folder() / "signatures.json").write_text(text, encoding="utf-8")
    if options.incidents:
        from adjudge.worker.client import Zygote

        with Zygote.start() as zygote:
            seen = {i.name: i.measure(zygote) for i in incidents.INCIDENTS}
        incidents.SIGNATURES.write_text(classes.to_json(seen), encoding="utf-8")
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if options.matrix:
        from adjudge.judge.selfcheck import selfcheck, to_json

        (HERE / "golden-matrix.json").write_text(to_json(selfcheck()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The page on where verdicts of a GPU and of the interpreter differ, from the records under `agreement`
and what was found out about each difference."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "agreement"
#: Of the GPU; and of the interpreter under the present gates, where the two first disagreed.
CUDA, AGAIN = FOLDER / "cuda.jsonl", FOLDER / "interpret.jsonl"
#: What was found out about differences: "<first 12 letters of the sha> <gate>" -> words.
READ = FOLDER / "read.json"
#: Outcomes in which a gate has said something of the kernel.
DECIDED = ("pass", "violation", "refusal")

Line = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One gate's outcomes of one kernel: of the interpreter and of the GPU."""

    sha: str
    problem: str
    gate: str
    here: str
    there: str
    reason_here: str
    reason_there: str

    @property
    def decided(self) -> bool:
        """Whether both have said something, and one convicts."""
        return (
            self.here in DECIDED
            and self.there in DECIDED
            and "violation" in (self.here, self.there)
        )

    @property
    def key(self) -> str:
        return f"{self.sha[:12]} {self.gate}"


def differing(interpret: list[Line], cuda: list[Line]) -> list[Difference]:
    """Where outcomes differ, kernels in the order of the first record. What either could not judge at
    all has no outcomes, and is not among them."""
    found, there = [], {line["sha"]: line for line in cuda}
    for line in interpret:
        other = there.get(line["sha"])
        if other is None or "findings" not in other or "findings" not in line:
            continue
        for gate, outcome in line["findings"].items():
            if other["findings"].get(gate, outcome) != outcome:
                found.append(
                    Difference(
                        sha=line["sha"],
                        problem=line["problem"],
                        gate=gate,
                        here=outcome,
                        there=other["findings"][gate],
                        reason_here=_reason(line, gate),
                        reason_there=_reason(other, gate),
                    )
                )
    return found


def _reason(line: Line, gate: str) -> str:
    """What the gate says of its outcome; of a violation, what is wrong and where."""
    for violation in line["violations"]:
        if violation["gate"] == gate:
            return str(violation["message"])
    return str(line["reasons"].get(gate, ""))


def compared() -> tuple[list[Line], list[Line], list[Difference]]:
    """The interpreter's lines, the GPU's, and where they differ: the present gates' lines where there
    are any."""
    again = {line["sha"]: line for line in _read(AGAIN) if "findings" in line}
    audit = [again.get(line["sha"], line) for line in _read(HERE / "first-100" / "audit.jsonl")]
    cuda = _read(CUDA)
    return audit, cuda, differing(audit, cuda)


def page() -> str:
    audit, cuda, found = compared()
    words = json.loads(READ.read_text(encoding="utf-8"))
    judged = [line for line in cuda if "findings" in line]
    shas = {line["sha"] for line in judged}
    here = {line["sha"]: line for line in audit if line["sha"] in shas}
    pairs = Counter(
        (outcome, line["findings"][gate])
        for line in judged
        for gate, outcome in here[line["sha"]]["findings"].items()
        if gate in line["findings"]
    )
    decided = sum(n for (a, b), n in pairs.items() if a in DECIDED and b in DECIDED)
    alike = sum(n for (a, b), n in pairs.items() if a == b and a in DECIDED)
    odd = [d for d in found if d.decided]
    return "\n".join(
        [
            "# Verdicts of a GPU beside those of the interpreter",
            "",
            f"The accepted kernels of [first-100](first-100/README.md): {len(judged)} of {len(audit)} "
            "judged again on an H200, under the same "
            f"{len(next(iter(here.values()))['findings'])} gates "
            "(`benchmarks/agreement.py`; `docs/generate.py` makes this page). Those of which the two "
            "disagreed were judged again in the interpreter, under the gates of the GPU's record.",
            "",
            f"{alike} of the {decided} findings that both decide are alike; {len(odd)} convict on one "
            "side only:",
            "",
            "| kernel | gate | interpreter | GPU | why |",
            "| --- | --- | --- | --- | --- |",
            *(_row(d, words.get(d.key, "")) for d in odd),
            "",
            "All outcomes, interpreter first:",
            "",
            "| interpreter | GPU | findings |",
            "| --- | --- | --- |",
            *(f"| {a} | {b} | {n} |" for (a, b), n in sorted(pairs.items())),
            "",
            *_unjudged(cuda),
        ]
    )


def _row(one: Difference, words: str) -> str:
    cells = [
        f"`{one.sha[:12]}` {one.problem}",
        one.gate,
        f"{one.here}: {one.reason_here}" if one.reason_here else one.here,
        f"{one.there}: {one.reason_there}" if one.reason_there else one.there,
        words or "not read yet",
    ]
    return f"| {' | '.join(_flat(cell) for cell in cells)} |"


def _flat(text: str, longest: int = 160) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= longest else f"{text[:longest]}…"


def _unjudged(cuda: list[Line]) -> list[str]:
    failed = [line for line in cuda if "fault" in line]
    if not failed:
        return []
    rows = [f"- `{line['sha'][:12]}` {line['problem']}: {_flat(line['fault'])}" for line in failed]
    return ["Not judged on the GPU:", "", *rows, ""]


def _read(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

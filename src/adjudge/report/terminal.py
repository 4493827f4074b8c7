"""A verdict as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adjudge.contract import Finding, Hint, Outcome, Standing, Verdict, Violation
from adjudge.inputs.codec import describe

if TYPE_CHECKING:
    from adjudge.judge.replay import ReplayResult

_STANDING = {
    Standing.SOUND: "bold green",
    Standing.FRAGILE: "bold yellow",
    Standing.VIOLATING: "bold red",
    Standing.INCONCLUSIVE: "bold magenta",
}
_MARK = {
    Outcome.PASS: ("✓", "green"),
    Outcome.VIOLATION: ("✗", "bold red"),
    Outcome.REFUSAL: ("↷", "yellow"),
    Outcome.NOT_APPLICABLE: ("·", "dim"),
    Outcome.INCONCLUSIVE: ("?", "magenta"),
}
_MEANING = {
    Standing.SOUND: "no contract is broken",
    Standing.FRAGILE: "broken only beyond the declared scope",
    Standing.VIOLATING: "broken within the declared scope",
    Standing.INCONCLUSIVE: "too little could be judged to acquit",
}


#: Hints that are shown with a verdict; all of them are in its record.
_HINTS = 5


def verdict_report(
    verdict: Verdict,
    *,
    summaries: dict[str, str],
    replay_tail: str,
    verbose: bool = False,
    table: bool = True,
) -> RenderableType:
    """Everything about one verdict.

    Args:
        summaries: each gate's one-line summary.
        replay_tail: what follows the code in the line that replays it (candidate and reference).
        verbose: also the provenance and the seconds by stage.
        table: also the gates that found nothing.
    """
    parts: list[RenderableType] = [verdict_line(verdict)]
    parts += [Text(f"  ! {warning}", style="yellow") for warning in verdict.warnings]
    parts += _promises(verdict)
    parts.append(Text())
    for finding in verdict.violations:
        parts.append(_violation(finding, summaries.get(finding.gate, ""), replay_tail))
    if table:
        parts.append(_table(verdict.findings))
    if verdict.refusals:
        parts.append(Text("  refuses some probes with", style="yellow"))
        parts += [Text(f"    {words}", style="dim") for words in verdict.refusals[:5]]
    if verdict.hints:
        parts.append(Text("  worth a look, though it proves nothing", style="yellow"))
        parts += hint_lines(verdict.hints[:_HINTS], verdict.name)
        if len(verdict.hints) > _HINTS:
            parts.append(Text(f"    and {len(verdict.hints) - _HINTS} more", style="dim"))
    if verbose:
        parts.append(_details(verdict))
    return Group(*parts)


def _promises(verdict: Verdict) -> Iterator[Text]:
    """What was declared and is judged by no gate here yet, and the reasons for what is looser."""
    for promise in verdict.promises:
        if promise.waits:
            words = promise.waits if promise.judged else promise.words
            line = f"  ! {promise.name}: declared, and judged by no gate here yet: {words}"
            yield Text(line, style="yellow")
        if promise.reason:
            yield Text(f"  {promise.name} is {promise.words}: {promise.reason}", style="dim")


def hint_lines(hints: Sequence[Hint], name: str) -> list[Text]:
    """One line a hint."""
    return [Text(f"    {name}:{h.line}  {h.rule}: {h.words}", style="dim") for h in hints]


def verdict_line(verdict: Verdict) -> Text:
    """The verdict in two lines."""
    line = Text()
    line.append(verdict.name, style="bold")
    line.append("  ")
    line.append(verdict.standing.value.upper(), style=_STANDING[verdict.standing])
    meaning = _MEANING[verdict.standing]
    if verdict.waived:
        meaning += ", beyond what is waived"
    line.append(f"  {meaning}\n")
    grade = verdict.grade if verdict.grade != "none" else "below every regime"
    line.append(f"  precision {grade}, required {verdict.required}", style="dim")
    line.append(
        f" · {len(verdict.violations)} of {len(verdict.findings)} contracts broken"
        f" · {verdict.probes} probes · {verdict.seconds:.1f} s",
        style="dim",
    )
    if verdict.contract:
        line.append(f" · under contract {verdict.contract}", style="dim")
    if verdict.waived:
        line.append(f" · {len(verdict.waived)} waived", style="yellow")
    if not verdict.provenance.isolation:
        line.append(" · NOT ISOLATED", style="bold red")
    return line


def _violation(finding: Finding, summary: str, replay_tail: str) -> RenderableType:
    violation = finding.violation
    assert violation is not None
    title = Text("✗ ", style="bold red")
    title.append(finding.gate, style="bold red")
    title.append(f"  {finding.scope.value}{', exact' if finding.exact else ''}", style="dim")
    title.append(f"\n  {summary}" if summary else "")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, value in _rows(violation):
        rows.add_row(name, Text(value))
    parts: list[RenderableType] = [title, Padding(rows, (0, 0, 0, 2))]
    if violation.replay:
        line = f"  adjudge replay {violation.replay} {replay_tail}".rstrip()
        # One line however narrow the terminal is, so that it can be pasted.
        parts.append(Text(line, style="cyan", no_wrap=True, overflow="ignore"))
    parts.append(Text())
    return Group(*parts)


def _rows(violation: Violation) -> Iterator[tuple[str, str]]:
    yield "what", violation.message
    yield "probe", describe(violation.probe)
    where = violation.where
    if violation.index is not None:
        where += f"[{', '.join(map(str, violation.index))}]"
    if where:
        yield "where", where
    if violation.expected or violation.got:
        yield "expected", violation.expected
        yield "got", violation.got
    if violation.bound:
        bound = violation.bound
        if violation.excess and violation.excess > 1:
            bound += f"  (error is {violation.excess:.3g} times that)"
        yield "bound", bound
    if violation.beyond_worst_case:
        yield "", "no order of summation could explain it"


def _table(findings: Sequence[Finding]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    first = findings[0]
    if len(findings) > 1 and all(
        (f.outcome, f.reason) == (first.outcome, first.reason) for f in findings
    ):
        notes = tuple(dict.fromkeys(note for f in findings for note in f.notes))
        findings = [replace(first, gate=f"all {len(findings)} gates", notes=notes)]
    for finding in findings:
        mark, style = _MARK[finding.outcome] if not finding.waived else ("w", "yellow")
        reason = finding.reason if finding.outcome is not Outcome.VIOLATION else "see above"
        if finding.notes:
            reason += f" ({'; '.join(finding.notes)})"
        outcome = finding.outcome.value.replace("_", " ")
        words = reason if finding.outcome is Outcome.PASS else f"{outcome}: {reason}"
        if finding.waived:
            words = f"{finding.reason}; waived by {finding.waived}"
        table.add_row(Text(mark, style=style), Text(finding.gate, style=style), Text(words))
    return table


def _details(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    p = verdict.provenance
    table.add_row("", "")
    table.add_row("runner", f"{p.runner} on {p.device}")
    table.add_row("isolation", ", ".join(p.isolation) or "none")
    table.add_row("weights", f"matched {p.weights}" if p.weights != "none" else "none")
    table.add_row("versions", ", ".join(f"{name} {number}" for name, number in p.versions))
    table.add_row(
        "digests", f"task {p.task[:12]} candidate {p.candidate[:12]} gates {p.gates[:12]}"
    )
    table.add_row("shared", f"{verdict.shared} probes asked for by several gates were run once")
    for name, seconds in sorted(verdict.timings, key=lambda item: -item[1]):
        if seconds >= 0.005:
            table.add_row(name, f"{seconds:.2f} s")
    if verdict.stdout:
        table.add_row("candidate said", verdict.stdout[:2000])
    return table


def replay_report(result: ReplayResult) -> RenderableType:
    """What a replay showed."""
    same = {True: "the same bytes", False: "OTHER BYTES", None: "not recorded"}
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("probe", Text(describe(result.probe)))
    table.add_row("inputs", same[result.same_inputs])
    table.add_row("outputs", same[result.same_outputs])
    violation = result.finding.violation if result.finding else None
    if violation is None:
        head = Text(f"{result.gate}: the violation does not show", style="bold green")
        return Group(head, Padding(table, (0, 0, 0, 2)))
    for name, value in _rows(violation):
        if name != "probe":
            table.add_row(name, Text(value))
    head = Text(f"✗ {result.gate}: the violation shows again", style="bold red")
    return Group(head, Padding(table, (0, 0, 0, 2)))

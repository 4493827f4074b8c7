"""Hints: places in a candidate's source that look like what the field knows as hacks.

A hint convicts nobody: an honest kernel may read a clock, and a hostile one may hide what it does
behind a name that is computed when it runs, which this reading can only report as unreadable. What
happened is established by the gates. A hint says where a reader should look first.

The list is put together from what published checkers and audits name: KernelGuard's rule names,
KernelBench's static checker, and the accounts of METR, Makora, Sakana and wafer.ai.

One file a kind: `uses` (names), `state` (between calls), `answers` (that no kernel gives),
`handed_back` (arguments as answers), `precision`, `cuda` (C++). `RULES` below puts them together.
"""

from __future__ import annotations

from adjudge.contract import Hint
from adjudge.static.hints.answers import (
    fallback,
    reads_values,
    shape_table,
    uses_reference,
)
from adjudge.static.hints.common import Rule
from adjudge.static.hints.cuda import IN_CUDA, in_cuda
from adjudge.static.hints.handed_back import passes_through
from adjudge.static.hints.precision import less_precise
from adjudge.static.hints.state import keeps_state, pointer_key
from adjudge.static.hints.uses import computed_name, lazy_tensor, patches, recognises, uses
from adjudge.static.source import Source

#: Each rule by its name. What a rule looks for is in its words.
RULES: tuple[tuple[str, Rule], ...] = (
    ("pointer-key", pointer_key),
    ("keeps-state", keeps_state),
    ("walks-stack", uses("walks-stack")),
    ("patches", patches),
    ("reads-clock", uses("reads-clock")),
    ("starts-work", uses("starts-work")),
    ("side-stream", uses("side-stream")),
    ("lazy-tensor", lazy_tensor),
    ("fallback", fallback),
    ("reads-machine", uses("reads-machine")),
    ("runs-text", uses("runs-text")),
    ("passes-through", passes_through),
    ("shape-table", shape_table),
    ("recognises-judge", recognises),
    ("computed-name", computed_name),
    ("less-precise", less_precise),
    ("reads-values", reads_values),
    ("uses-reference", uses_reference),
    *((rule, in_cuda(rule)) for rule in IN_CUDA),
)


def hints(text: str) -> tuple[Hint, ...]:
    """Everything that looks like a hack, in the order of the text; nothing if it is no Python."""
    try:
        source = Source(text)
    except (RecursionError, MemoryError):
        return (Hint(rule="computed-name", line=1, words="nests too deep to be read"),)
    except (SyntaxError, ValueError):
        return ()
    found = {part for name, look in RULES for part in _looked(name, look, source)}
    return tuple(Hint(rule=rule, line=line, words=words) for line, rule, words in sorted(found))


def _looked(name: str, look: Rule, source: Source) -> list[tuple[int, str, str]]:
    """(line, rule, words) of what the rule finds; where that is beyond it, it says so."""
    try:
        return [(getattr(node, "lineno", 1), name, words) for node, words in look(source)]
    except (RecursionError, MemoryError):
        return [(1, name, "could not be looked for: the source nests too deep")]

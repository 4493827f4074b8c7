"""Contracts and waivers as files: what is written is read, and a mistake points at its line."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjudge.contract import Finding, Outcome, Violation
from adjudge.contracts import classes, file, reading, sizes, waivers
from adjudge.contracts.draft import to_toml
from adjudge.contracts.lines import lines_of
from adjudge.contracts.promises import DESIGNED, present, promises
from adjudge.contracts.terms import Looser, LooserGradient
from adjudge.errors import UsageError
from adjudge.gates import GATES
from adjudge.probe import Probe

PLAIN = """\
schema = 1
identifier = "softmax"
oracle = "the reference"
measurement = "all gates"
signature = "as reported"

[scope]
words = "rows"

[scope.sizes]
rows = "1..64"

[precondition]
words = "finite"

[postcondition]
words = "softmax"

[tolerance]
words = "derived"
"""
GRADIENT = '[[tolerance.gradients]]\nof = "args[0]"\nreason = "{}"\n'
LOOSER = '[[tolerance.looser]]\noutput = "output"\nreason = "{}"\n'


def loaded(folder: Path, text: str) -> file.ContractFile:
    path = folder / "contract.toml"
    path.write_text(text, encoding="utf-8")
    return file.load(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('oracle = "the reference"\n', "", r"toml:1: oracle is missing"),
        ('[tolerance]\nwords = "derived"\n', "", r"toml:1: tolerance is missing"),
        ('words = "softmax"', 'words = " "', r"toml:16: the part postcondition says nothing"),
        ('words = "finite"', 'words = "f"\nvalue = "any"', r"(?s)toml:15: .*Did you mean values"),
        ("[scope.sizes]", "[scope.size]", r"(?s)toml:10: there is no field.*sizes"),
        ('"1..64"', '"64..1"', r"toml:11: .*64 is greater than 1"),
        ('"1..64"', '"some"', r"toml:11: .*no range of sizes"),
        ('words = "rows"', 'words = "r"\nlayouts = ["slised"]', r"(?s)toml:9: .*sliced"),
        ('words = "rows"', 'words = "r"\nlayouts = ["sliced"]', r"toml:9: contiguous inputs"),
        ('words = "rows"', 'words = "r"\nranks = [3, 7]', r"(?s)toml:9: .*rank 7 are not.*2, 3, 4"),
        ('words = "rows"', 'words = "r"\ndtypes = ["float3"]', r"(?s)toml:9: .*float32"),
        (
            'words = "finite"',
            'words = "f"\nranges = {a = [0.0, 1.0]}',
            r"toml:15: ranges are given",
        ),
        (
            'words = "softmax"',
            'words = "s"\nrandom = true\ndeterminism = "bitwise"',
            r"toml:19: determinism is declared, and random too",
        ),
        ('words = "softmax"', 'words = "s"\ntraining = 1', r"toml:18: postcondition.training"),
        ('words = "derived"', 'words = "d"\nregime = "fp23"', r"(?s)toml:21: .*fp32"),
        ("[tolerance]", LOOSER.format("") + "atol = 1.0\n[tolerance]", r"has no reason"),
        ("[tolerance]", LOOSER.format("why") + "[tolerance]", r"neither atol nor rtol"),
        (
            "[tolerance]",
            LOOSER.format("why") + "rtol = 1e30\n[tolerance]",
            r"toml:22: .*accepts zero",
        ),
        (
            "[tolerance]",
            LOOSER.format("why") + "rtol = 1.0\n[tolerance]",
            r"toml:22: .*accepts zero",
        ),
        ("[tolerance]", GRADIENT.format("") + "atol = 1.0\n[tolerance]", r"toml:21: .*no reason"),
        (
            "[tolerance]",
            GRADIENT.format("why") + "rtol = 1.0\n[tolerance]",
            r"toml:22: .*accepts zero",
        ),
        (
            "[tolerance]",
            2 * (GRADIENT.format("why") + "rtol = 0.1\n") + "[tolerance]",
            r"toml:24: the gradient of args\[0\] has two tolerances",
        ),
        (
            "[scope.sizes]",
            '[[scope.refusals]]\nexception = "Exception"\n[scope.sizes]',
            r"toml:11: Exception with any message allows every error",
        ),
        (
            "[scope.sizes]",
            '[[scope.refusals]]\nexception = "Exception"\nmessage = ".*"\n[scope.sizes]',
            r"toml:12: Exception with any message allows every error",
        ),
        ('"all gates"', "", r"toml:4: is not TOML"),
        ('measurement = "all gates"', "measurement = 3", r"toml:4: measurement"),
        ('identifier = "softmax"', 'identifier = "soft max"', r"toml:2: .*no identifier"),
        ('"1..64"', "[" * 5000 + "]" * 5000, r"toml:11: keys and brackets lie more than 64 deep"),
        ("schema = 1", "schema = 1\n" + ".".join(["a"] * 20_000) + " = 1", r"toml:2: keys and br"),
        ('"1..64"', "9" * 5000, r"toml:11: a number has more digits"),
        ('"1..64"', "[1, 9223372036854775808]", r"toml:11: rows: 9223372036854775808 is no size"),
        ('"1..64"', f'"1..{"9" * 20}"', r"toml:11: .*no range of sizes"),
        (
            'words = "softmax"',
            'words = "s"\ndestinations = ["class"]',
            r"toml:18: .class. names no",
        ),
        ('words = "derived"', f'words = "d"\n{LOOSER.format("w")}atol = nan', r":24: atol is nan"),
    ],
)
def test_a_mistake_is_one_message_with_its_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in PLAIN
    with pytest.raises(UsageError, match=words):
        loaded(tmp_path, PLAIN.replace(old, new, 1))


def test_a_reference_that_is_not_there_is_a_mistake_of_the_line_that_names_it(
    tmp_path: Path,
) -> None:
    oracle = 'oracle = {words = "o", reference = "nowhere.py"}'
    found = loaded(tmp_path, PLAIN.replace('oracle = "the reference"', oracle))
    with pytest.raises(UsageError, match=r"toml:3: the reference 'nowhere.py' is no file"):
        _ = found.reference


def test_what_allows_a_little_is_read(tmp_path: Path) -> None:
    text = PLAIN + LOOSER.format("why") + "rtol = 0.5\n"
    for refusal in ('"ValueError"', '"Exception"\nmessage = "rows"'):
        loaded(tmp_path, f"{text}[[scope.refusals]]\nexception = {refusal}\n")


def test_a_mark_of_byte_order_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "contract.toml"
    path.write_bytes(b"\xef\xbb\xbf" + PLAIN.encode())
    assert file.load(path) == loaded(tmp_path, PLAIN)


def test_a_tolerance_tighter_than_storage_is_refused(tmp_path: Path) -> None:
    text = PLAIN.replace('words = "rows"', 'words = "r"\ndtypes = ["float16"]')
    text += LOOSER.format("why") + "rtol = 1e-6\n"
    with pytest.raises(
        UsageError, match=r"toml:25: rtol 1e-06 is tighter than the oracle supports"
    ):
        loaded(tmp_path, text)


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)


@settings(deadline=None, max_examples=30)
@given(words=WORDS, reason=WORDS, low=st.integers(0, 99), more=st.integers(0, 99))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, words: str, reason: str, low: int, more: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    plain = loaded(folder, PLAIN).terms
    terms = replace(
        plain,
        scope=replace(plain.scope, words=words, sizes={words: f"{low}..{low + more}", "n": [low]}),
        tolerance=replace(
            plain.tolerance,
            looser=[Looser(output="output", reason=reason, atol=0.5)],
            gradients=[LooserGradient(of=words, reason=reason, rtol=0.5)],
        ),
    )
    found = loaded(folder, to_toml(terms))
    assert found.terms == terms
    assert found.file.lines.at(["tolerance", "looser", 0, "reason"]) > found.file.lines.at(
        ["scope"]
    )


@given(low=st.integers(0, 500), count=st.integers(0, 500), step=st.integers(1, 9))
def test_sizes_hold_what_they_name(low: int, count: int, step: int) -> None:
    (found,) = sizes.ranges(f"{low}..{low + count} by {step}")
    held = [n for n in range(low + count + 2) if n in found]
    assert held == list(range(low, low + count + 1, step))
    assert found.last == held[-1]
    assert sizes.ranges(str(found)) == (found,) if low != low + count else True


def test_lines_are_those_of_the_text() -> None:
    text = 'a = 1\nb = """\n[no]\n"""\n[x]\n"y.z" = [\n 1,\n]\n[[r]]\nk = 1\n[[r]]\nk = 2\n'
    lines = lines_of(text)
    assert lines.at(["x", "y.z"]) == 6
    assert lines.at(["r", 1, "k"]) == 12
    assert lines.at(["no"]) == 1


def test_every_class_says_its_gate_and_what_waits() -> None:
    for name in classes.CLASSES:
        terms = classes.published(name).terms
        assert terms.identifier == name
        named = {p.name: p for p in promises(terms)}
        here = present([classes.carrier(name)])
        assert bool(named["measurement.gates"].waits) == (not here)


def test_signatures_are_measured_for_every_gate_that_is_here() -> None:
    here = {name for name in classes.CLASSES if present([classes.carrier(name)])}
    assert set(classes.measured()) == here, "run docs/generate.py --signatures"


def test_every_gate_is_one_of_the_design() -> None:
    assert {g.CONTRACT.identifier for g in GATES} <= set(DESIGNED)


WAIVER = """\
schema = 1
[[waiver]]
gate = "wrong-value"
signature = "value"
scope = "declared"
reason = "known"
expires = 2030-01-31
"""


def waiver_file(folder: Path, text: str, today: date) -> waivers.Waivers:
    path = folder / "waivers.toml"
    path.write_text(text, encoding="utf-8")
    return waivers.load(path, today)


def finding(signature: str = "value") -> Finding:
    violation = Violation(probe=Probe(), signature=signature, message="m")
    return Finding(gate="wrong-value", outcome=Outcome.VIOLATION, reason="m", violation=violation)


def test_a_waiver_accepts_until_its_day_and_goes_stale_loudly(tmp_path: Path) -> None:
    held = waiver_file(tmp_path, WAIVER, date(2030, 1, 31))
    (marked,) = waivers.waived((finding(),), held, "k")
    assert "known" in marked.waived
    assert waivers.complaints([marked], held, "k") == ()
    late = waiver_file(tmp_path, WAIVER, date(2030, 2, 1))
    assert waivers.waived((finding(),), late, "k") == (finding(),)
    assert "expired" in waivers.complaints([finding()], late, "k")[0][1]
    ((line, words),) = waivers.complaints([finding("class")], held, "k")
    assert line == 2
    assert "matches no violation" in words
    undecided = Finding(gate="wrong-value", outcome=Outcome.INCONCLUSIVE, reason="r")
    assert waivers.complaints([undecided], held, "k") == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("wrong-value", "wrong-valu", r"(?s)toml:3: .*wrong-value"),
        ('reason = "known"\n', "", r"toml:2: .*reason is missing"),
        ("2030-01-31", '"soon"', r"toml:7: "),
    ],
)
def test_bad_waivers(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        waiver_file(tmp_path, WAIVER.replace(old, new), date(2026, 1, 1))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        reading.parsed(tmp_path / "none.toml")

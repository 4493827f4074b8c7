"""Machine code read: what a kernel really does on a chip, whatever its source says."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from adjudge.static.chips import Chip

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")

#: Matrix instructions, and what an accumulator is where the opcode does not say.
_MATRIX = ("HMMA", "HGMMA", "QMMA", "QGMMA", "OMMA", "IMMA", "IGMMA", "BMMA", "DMMA")
_TENSOR_MEMORY = ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA")
_INTEGER = ("IMMA", "IGMMA", "BMMA")
_OPERANDS = {
    "TF32": "tf32", "BF16": "bf16", "E4M3": "fp8", "E5M2": "fp8", "S8": "int8", "U8": "int8",
    "E2M1": "fp4",
}  # fmt: skip
_FLOATS = re.compile(r"\.(?:ADD|MIN|MAX)(?:\.\w+)*?\.(F16|F16x2|BF16|BF16x2|BF16_V2|F32|F64)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """One kind of matrix instruction."""

    instruction: str
    count: int
    #: "fp16", "bf16", "tf32", "fp8", "fp64", ...
    operands: str
    #: "fp32", "fp16", "int32", "fp64", or "" where a descriptor says it at run time.
    accumulator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """What one kernel is on one chip."""

    chip: Chip
    registers: int
    #: Bytes a thread keeps on its stack, and in local memory.
    stack: int
    local: int
    #: Bytes of shared memory and columns of tensor memory a block asks for.
    shared: int
    tensor_memory: int
    instructions: int
    products: tuple[MatrixProduct, ...]
    #: Loads and stores of local memory: what did not fit in registers, and arrays indexed at run time.
    spills: int
    #: Atomic additions of floats by kind: their order, and so their sum, differs from run to run.
    float_atomics: tuple[tuple[str, int], ...]
    #: Additions and multiplications in 16 bits, matrix instructions aside.
    half: int
    #: Instructions that turn subnormals into zeros.
    flushes: int
    #: Approximate functions of the special unit, by name (EX2, RCP, ...).
    approximate: tuple[tuple[str, int], ...]
    #: Bytes of spill stores and loads as the assembler counts them; None where it was not asked.
    spilled: int | None = None

    @property
    def excesses(self) -> tuple[str, ...]:
        """What the chip does not have."""
        asked = (
            ("bytes of shared memory", self.shared, self.chip.shared),
            ("columns of tensor memory", self.tensor_memory, self.chip.tensor_memory),
            ("registers a thread", self.registers, self.chip.registers),
        )
        return tuple(
            f"asks for {n:,} {words}; {self.chip.name} has {most:,}"
            for words, n, most in asked
            if n > most
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know, worst first."""
        found = list(self.excesses)
        if self.spills:
            kept = self.stack + self.local
            words = f"{self.spills} accesses of local memory, {kept} bytes a thread"
            # Only the assembler can tell a spill from an array that is indexed at run time.
            found.append(f"no spill, but {words}" if self.spilled == 0 else f"spills: {words}")
        for product in self.products:
            if product.accumulator in ("fp16", "bf16"):
                found.append(f"matrix products are summed in {product.accumulator}")
            if product.operands == "tf32":
                found.append("matrix products cut their operands to 10 bits (tf32)")
        if self.float_atomics:
            kinds = ", ".join(kind for kind, _ in self.float_atomics)
            found.append(f"adds {kinds} atomically: the order of a sum may differ between runs")
        if self.half:
            found.append(f"{self.half} additions or multiplications in 16 bits")
        return tuple(dict.fromkeys(found))


def read(
    chip: Chip,
    usage: str,
    sass: str,
    *,
    shared: int = 0,
    tensor_memory: int = 0,
    spilled: int | None = None,
) -> MachineCode:
    """The facts in what `cuobjdump -res-usage` and `nvdisasm -c` print of one kernel.

    Args:
        shared: bytes of shared memory that a launch asks for, static ones included.
        tensor_memory: columns that the kernel allocates.
        spilled: bytes of spills, where the assembler said them.
    """
    used = {name: int(number) for name, number in _USAGE.findall(usage)}
    opcodes: Counter[str] = Counter()
    half = 0
    for opcode, operands in _INSTRUCTION.findall(sass):
        opcodes[opcode] += 1
        # With the zero register in two places it moves a constant, and adds nothing.
        half += opcode.startswith(("HADD2", "HMUL2", "HFMA2")) and operands.count("RZ") < 2
    return MachineCode(
        chip=chip,
        registers=used.get("REG", 0),
        stack=used.get("STACK", 0),
        local=used.get("LOCAL", 0),
        shared=max(shared, used.get("SHARED", 0)),
        tensor_memory=tensor_memory,
        instructions=opcodes.total(),
        products=tuple(_product(o, n) for o, n in sorted(opcodes.items()) if _is_product(o)),
        spills=sum(n for o, n in opcodes.items() if o.split(".")[0] in ("LDL", "STL")),
        float_atomics=_float_atomics(opcodes),
        half=half,
        flushes=sum(n for o, n in opcodes.items() if ".FTZ" in o),
        approximate=_approximate(opcodes),
        spilled=spilled,
    )


def _is_product(opcode: str) -> bool:
    return opcode.split(".")[0] in (*_MATRIX, *_TENSOR_MEMORY)


def _product(opcode: str, count: int) -> MatrixProduct:
    name, *parts = opcode.split(".")
    operands = next((_OPERANDS[part] for part in parts if part in _OPERANDS), "")
    if name in _TENSOR_MEMORY:
        kinds = {"UTCHMMA": "16 bits or tf32", "UTCQMMA": "fp8", "UTCIMMA": "int8"}
        return MatrixProduct(
            instruction=name, count=count, operands=kinds.get(name, "fp4"), accumulator=""
        )
    if name == "DMMA":
        accumulator, operands = "fp64", "fp64"
    elif name in _INTEGER:
        accumulator, operands = "int32", operands or "int8"
    else:
        accumulator = "fp32" if "F32" in parts else "fp16"
        operands = operands or "fp16"
    return MatrixProduct(
        instruction=opcode, count=count, operands=operands, accumulator=accumulator
    )


def _float_atomics(opcodes: Counter[str]) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        kind = _FLOATS.search(opcode)
        # Least and greatest do not depend on the order.
        if opcode.startswith(("ATOM", "RED.", "REDG")) and kind and ".ADD" in opcode:
            found[kind[1]] += count
    return tuple(sorted(found.items()))


def _approximate(opcodes: Counter[str]) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        name, *parts = opcode.split(".")
        if name == "MUFU" and parts:
            found[parts[0]] += count
    return tuple(sorted(found.items()))

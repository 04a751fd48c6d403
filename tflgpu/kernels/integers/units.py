"""Integer units of CPUs: instructions that multiply 8-bit integers and add up the products in sums of 32 bits.

Compilers make none of them of OpenCL C, so that they are inline assembly (``templates/integers/unit.cl.j2``). What
differs by the instruction set is data here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.architecture import Trial


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Instructions of a processor that do not depend on the integer unit.

    Operands: %0 where the offsets of quads are, %1 the weights, %2 how many quads are left, %3 where a quad is, %4 what
    the sums of a row begin with, %5 the activations, %6 the sums, %7 bytes from what a row begins with to that of the
    next one. next_row: goes there. begin: has the place of a quad in %3. advance: from one quad to the next,
    ``weights`` bytes of weights; it ends with a branch to label 1. clobbers: names of all vector registers, where
    inline assembly may name them.
    """

    load_sum: str
    next_row: str
    store_sum: str
    begin: tuple[str, ...]
    advance: tuple[str, ...]
    finish: tuple[str, ...]
    clobbers: str
    registers: int


@dataclass(frozen=True, kw_only=True)
class IntegerUnit:
    """How a processor multiplies integers, and the blocks of sums that its registers hold.

    The products of a block are a loop over quads, which are four inputs of each row. Activations are quads of [row][4],
    each at an offset of its own, and weights are packed as [quad][4 / inputs][column][inputs]. The columns may be a
    part of those of a wider block.

    lanes: sums of a register. inputs: of a sum that an instruction multiplies. widens: whether activations are packed
    as integers of 16 bits. weight_bytes: of a packed weight. offset: what activations are packed less: 128 where they
    have to be signed. wider: the unit for weights of 9 bits, which are uint8 less a zero point, if there is one.
    shapes: rows and registers of columns of blocks, those that are the fastest for many rows first.
    load, broadcast, multiply: instructions that load weights, copy the inputs of a row to all lanes, and add
    products to a sum. Registers in them are numbers.
    """

    assembly: Assembly
    lanes: int
    inputs: int
    widens: bool = False
    offset: int = 0
    shapes: tuple[tuple[int, int], ...]
    load: str
    broadcast: str
    multiply: tuple[str, ...]
    weight_bytes: int = 1
    wider: IntegerUnit | None = None

    @property
    def all(self) -> tuple[IntegerUnit, ...]:
        """The unit, and the wider one if there is one."""
        return (self,) if self.wider is None else (self, self.wider)

    @property
    def packed_registers(self) -> int:
        """Registers of columns of a block of weights that kernels of all numbers of rows read."""
        return max(registers for _, registers in self.shapes)

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """Rows and registers of blocks of sums, and registers of the blocks of weights of which they read a part."""
        own = [(rows, registers, registers) for rows, registers in self.shapes]
        parts = [(*shape, self.packed_registers) for shape in self.shapes if shape[1] < self.packed_registers]
        return (*own, *parts)

    @property
    def function(self) -> str:
        """Prefix of the names of the functions that multiply."""
        return "multiply_wide" if self.weight_bytes == 2 else "multiply"

    @property
    def element_bytes(self) -> int:
        """Bytes of a packed activation."""
        return 2 if self.widens else 1

    def step_cycles(self, rows: int, registers: int) -> float:
        """Cycles in which a block of sums gets the products of a quad, if two instructions of a kind begin in a cycle.

        A sum waits for the product that was added before. Loads take a little of the time of products, too.
        """
        steps, loads = 4 // self.inputs, rows + registers
        return steps * (max(rows * registers * len(self.multiply) / 2, loads / 2, ADDITION_LATENCY) + loads / 8)


# Cycles from one addition to a sum to the next one. Processors take 1 to 5.
ADDITION_LATENCY = 4


def _x86(register: str, registers: int, move: str) -> Assembly:
    return Assembly(
        load_sum=f"{move} {{at}}(%4), %%{register}{{sum}}",
        next_row="add %7, %4",
        store_sum=f"{move} %%{register}{{sum}}, {{at}}(%6)",
        begin=("movslq (%0), %3", "add %5, %3"),
        advance=("add $4, %0", "add ${weights}, %1", "sub $1, %2", "jnz 1b"),
        finish=("vzeroupper",),
        clobbers="xmm",
        registers=registers,
    )


_ZMM = _x86("zmm", 32, "vmovdqu64")
_YMM = _x86("ymm", 16, "vmovdqu")
_NEON = Assembly(
    load_sum="ldr q{sum}, [%4, #{at}]",
    next_row="add %4, %4, %7",
    store_sum="str q{sum}, [%6, #{at}]",
    begin=("ldrsw %3, [%0]", "add %3, %3, %5"),
    advance=("add %0, %0, #4", "add %1, %1, #{weights}", "subs %2, %2, #1", "b.ne 1b"),
    finish=(),
    clobbers="v",
    registers=32,
)

_WIDE_ZMM = IntegerUnit(
    assembly=_ZMM,
    lanes=16,
    inputs=2,
    widens=True,
    weight_bytes=2,
    shapes=((6, 4), (12, 2), (12, 1), (1, 4)),
    load="vmovdqu64 {at}(%1), %%zmm{weights}",
    broadcast="vpbroadcastd {at}(%3), %%zmm{row}",
    multiply=("vpdpwssd %%zmm{weights}, %%zmm{row}, %%zmm{sum}",),
)
_WIDE_YMM = IntegerUnit(
    assembly=_YMM,
    lanes=8,
    inputs=2,
    widens=True,
    weight_bytes=2,
    shapes=((6, 2), (6, 1), (1, 4)),
    load="vmovdqu {at}(%1), %%ymm{weights}",
    broadcast="vpbroadcastd {at}(%3), %%ymm{row}",
    multiply=(
        "vpmaddwd %%ymm{weights}, %%ymm{row}, %%ymm{product}",
        "vpaddd %%ymm{product}, %%ymm{sum}, %%ymm{sum}",
    ),
)


def _narrowed(wider: IntegerUnit, multiply: str) -> IntegerUnit:
    """Return a unit whose instruction adds four products of 8 bits to each sum, beside one of 16 bits."""
    return replace(wider, inputs=4, widens=False, weight_bytes=1, multiply=(multiply,), wider=wider)


UNITS: Mapping[str, IntegerUnit] = {
    "avx512_vnni": _narrowed(_WIDE_ZMM, "vpdpbusd %%zmm{weights}, %%zmm{row}, %%zmm{sum}"),
    "avx_vnni": _narrowed(
        replace(_WIDE_YMM, multiply=("%{{vex%}} vpdpwssd %%ymm{weights}, %%ymm{row}, %%ymm{sum}",)),
        "%{{vex%}} vpdpbusd %%ymm{weights}, %%ymm{row}, %%ymm{sum}",
    ),
    # Weights are widened by the load: vpmaddubsw would add two products of 8 bits in 16, which saturates.
    "avx2": replace(_WIDE_YMM, load="vpmovsxbw {at}(%1), %%ymm{weights}", weight_bytes=1, wider=_WIDE_YMM),
    "neon_dot": IntegerUnit(
        assembly=_NEON,
        lanes=4,
        inputs=4,
        offset=128,
        shapes=((6, 4), (12, 2), (1, 4)),
        load="ldr q{weights}, [%1, #{at}]",
        broadcast="ldr s{row}, [%3, #{at}]",
        multiply=("sdot v{sum}.4s, v{weights}.16b, v{row}.4b[0]",),
    ),
}

QUADS = 7  # of the products
START = 1000  # what a sum is before
EXTREMES = {1: (-128, -127, -1, 0, 1, 127), 2: (-255, -128, -1, 0, 127, 255)}  # of weights, by their packed bytes


def trial_of(unit: IntegerUnit) -> Trial:
    """Operands as they are packed for a unit and the wider one, and the sums of all their blocks."""
    random, run = np.random.default_rng(0), 1 + max(rows for each in unit.all for rows, _ in each.shapes)
    operands, sums = list[Array](), list[Array]()
    for each in unit.all:
        columns = each.packed_registers * each.lanes
        x = random.choice([0, 1, 127, 128, 254, 255], (QUADS, run, 4)) - each.offset
        packed = np.int16 if each.widens else np.int8 if each.offset else np.uint8
        weights = random.choice(EXTREMES[each.weight_bytes], QUADS * columns * 4)
        offsets = np.arange(QUADS, dtype=np.int32) * (run * 4 * each.element_bytes)
        operands += [x.astype(packed), weights.astype(f"i{each.weight_bytes}"), offsets]
        for rows, registers, together in each.products:
            own, all_columns = registers * each.lanes, together * each.lanes
            seen = weights[: QUADS * all_columns * 4].reshape(QUADS, 4 // each.inputs, all_columns, each.inputs)
            seen = seen[:, :, :own]  # a block of fewer columns reads a part of the weights
            inputs = x[:, :rows].reshape(QUADS, rows, 4 // each.inputs, each.inputs)
            sums.append(START + np.einsum("qrpi,qpci->rc", inputs, seen).reshape(-1))
    after = np.concatenate(sums).astype(np.int32)
    return Trial(
        "multiply_integers",
        ("integers/unit", "probes/integer_unit"),
        {"unit": unit, "quads": QUADS},
        tuple(operands),
        np.full(after.size, START, np.int32),
        after,
    )

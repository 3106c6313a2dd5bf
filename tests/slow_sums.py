"""Sums and dots written down a second time, recursively, on the oracle's Values: the slow twin of lpsim.sums."""

from typing import NamedTuple

import oracle
from lpsim.formats import Format
from oracle import Value


class Rounder:
    """Rounds Values to formats, with the policies of a call and the random words in the order of use."""

    def __init__(self, words=(), **rules):
        self.words, self.rules, self.count = words, rules, 0

    def __call__(self, value: Value, fmt: Format, rounding=None) -> Value:
        rules = dict(self.rules)
        if rounding is not None:
            rules = {**rules, "rounding": rounding}
        if len(self.words):  # the last cast may be of a value on the grid: it needs no word
            rules["word"] = int(self.words[self.count]) if self.count < len(self.words) else 0
        self.count += 1
        code = oracle.encode(value, fmt, **rules)
        assert code is not None
        return oracle.decode(code, fmt)


class Level(NamedTuple):
    """Additions of one level: each is rounded to fmt."""

    rounder: Rounder
    fmt: Format
    rounding: str | None = None

    def round(self, value: Value) -> Value:
        return self.rounder(value, self.fmt, self.rounding)

    def add(self, a: Value, b: Value) -> Value:
        mode = self.rounding or self.rounder.rules.get("rounding", "rne")
        return self.round(oracle.add(a, b, mode))

    def sub(self, a: Value, b: Value) -> Value:
        mode = self.rounding or self.rounder.rules.get("rounding", "rne")
        return self.round(oracle.sub(a, b, mode))


def sequential(values: list[Value], level: Level) -> Value:
    total = values[0]
    for value in values[1:]:
        total = level.add(total, value)
    return total


def kahan(values: list[Value], level: Level) -> Value:
    total, lost = level.round(values[0]), oracle.number(0)
    for value in values[1:]:
        y = level.sub(value, lost)
        t = level.add(total, y)
        lost = level.sub(level.sub(t, total), y)
        total = t
    return total


def pairwise(values: list[Value], level: Level) -> Value:
    half = len(values) // 2
    if half == 0:
        return values[0]
    left = pairwise(values[:half], level)
    return level.add(left, pairwise(values[half:], level))


def tree(values: list[Value], level: Level) -> Value:
    if len(values) == 1:
        return values[0]
    pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
    return tree([level.add(*pair) if len(pair) == 2 else pair[0] for pair in pairs], level)


def halves(values: list[Value], level: Level) -> Value:
    if len(values) == 1:
        return values[0]
    half = (len(values) + 1) // 2
    upper = values[half:]
    return halves([level.add(x, upper[i]) if i < len(upper) else x for i, x in enumerate(values[:half])], level)


JOINS = {"sequential": sequential, "kahan": kahan, "pairwise": pairwise, "tree": tree, "halves": halves}


def blocks_of(values: list, order) -> list[list]:
    if order.run:
        runs = [values[i : i + order.run] for i in range(0, len(values), order.run)]
        return [[x for run in runs[part :: order.parts] for x in run] for part in range(order.parts)]
    size = order.size or -(-len(values) // order.parts)
    return [values[i : i + size] for i in range(0, len(values), size)]


def fma_chain(pairs: list, level: Level) -> Value:
    total = level.round(oracle.mul(*pairs[0]))
    for a, b in pairs[1:]:
        total = level.round(oracle.fma(a, b, total, level.rounding or level.rounder.rules.get("rounding", "rne")))
    return total


def reduce(leaves: list, order, fmt: Format, accumulate: Format, rounder: Rounder, kind="sum") -> Value:
    """leaves: Values (kind "sum"), or pairs of Values ("mul": products are rounded; "fma": a chain)."""
    inside = Level(rounder, order.within or accumulate, order.within_rounding)
    across = Level(rounder, accumulate)
    totals = []
    blocks = blocks_of(leaves, order)
    for block in blocks:
        if kind == "fma":
            total = fma_chain(block, inside)
        else:
            values = [inside.round(oracle.mul(*pair)) for pair in block] if kind == "mul" else block
            total = JOINS[order.inner](values, inside)
        stored = order.partial is not None and len(blocks) > 1
        totals.append(rounder(total, order.partial) if stored else total)
    return rounder(JOINS[order.outer](totals, across), fmt)

"""The dynamic maximum that counts no ties: the maximum of every tile is displaced."""

import math

import numpy as np
import pytest

import lpsim as lp
from gradients import differing, tied
from lpsim.recipes import dynamic, with_switch


@pytest.mark.parametrize("recipe", ["triton", "paper"])
def test_every_maximum_is_displaced_without_a_tie(recipe):
    """Where a tile ties, what counting gives, bit for bit; where it does not, a shift of less than one binade."""
    q, k, v = tied(4.3)
    options = {"scale": 1.0, "block": (16, 16)}
    every, tile = (
        lp.attention.forward(q, k, v, recipe=with_switch(recipe, maximum=dynamic(guard=True, scope=scope)), **options)
        for scope in ("every", "tile")
    )
    assert differing(every.o, tile.o) == differing(every.lse, tile.lse) == 0
    k[5] = k[0]  # no tie is left
    every, tile, plain = (
        lp.attention.forward(q, k, v, recipe=rules, **options)
        for rules in (
            *(with_switch(recipe, maximum=dynamic(guard=True, scope=scope)) for scope in ("every", "tile")), recipe,
        )
    )  # fmt: skip
    assert differing(tile.m, plain.m) == 0
    assert (every.m > plain.m).all()
    assert (every.m - plain.m < math.log(2.0) / math.log(every.base)).all()


def test_every_maximum_needs_a_key():
    """A row whose scores are all -inf, and one that sees no key, stay what they are."""
    q, k, v = tied(4.3)
    hidden = np.zeros((16, 16), bool)
    hidden[2] = True
    bias = np.where(np.arange(16)[:, None] == 7, -np.inf, 0.0).astype(np.float32) + np.zeros((1, 16), np.float32)
    rules = with_switch("triton", maximum=dynamic(scope="every"))
    found = lp.attention.forward(q, k, v, recipe=rules, scale=1.0, mask=~hidden, bias=bias)
    assert np.flatnonzero(np.isneginf(found.lse)).tolist() == [2, 7]
    assert (found.o[[2, 7]].astype(float) == 0).all()

"""The reading version: attention in float64, as the formula says, with no tiles and no rounding sites."""

import numpy as np

from .inputs import Call


@np.errstate(invalid="ignore", over="ignore", divide="ignore")  # NaN and infinity go through
def forward(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """o (batch, n, d), m, l, lse (batch, n), float64, base e.

    S = scale q k^T, masked to -inf above the diagonal if causal; m = rowmax S; P = exp(S - m); l = rowsum P;
    o = P v / l; lse = m + log l.
    """
    q, k, v = (operand.values.astype(np.float64) for operand in (call.q, call.k, call.v))
    s = call.scale * (q @ np.swapaxes(k, 1, 2))
    if call.causal:
        s = np.where(np.tri(s.shape[1], s.shape[2], dtype=bool), s, -np.inf)
    m = s.max(axis=-1)
    p = np.exp(s - m[..., None])
    l = p.sum(axis=-1)
    return (p @ v) / l[..., None], m, l, m + np.log(l)

"""Block formats against Fractions: scales by their rules, elements by the oracle, values as exact products."""

from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim.blocks import BLOCKS, SCALE_RULES, Blocks, decode, encode, power_scale
from lpsim.formats import FORMATS

MX = [name for name in BLOCKS if name != "nvfp4"]
LARGEST = {"mxfp8_e4m3": 448, "mxfp8_e5m2": 57344, "mxfp6_e3m2": 28, "mxfp6_e2m3": Fraction(15, 2), "mxfp4": 6}
UE4M3, E2M1, FP32 = FORMATS["ue4m3"], FORMATS["e2m1"], FORMATS["fp32"]


def floor_log2(x: Fraction) -> int:
    exponent = 0
    while Fraction(2) ** (exponent + 1) <= x:
        exponent += 1
    while Fraction(2) ** exponent > x:
        exponent -= 1
    return exponent


def scale_exponent(amax: Fraction, largest: Fraction, rule: str) -> int:
    """The definition, in Fractions: a whole log2 of amax, less the exponent of the largest element."""
    if amax == 0:
        return -127
    below = floor_log2(amax)
    low, high = Fraction(2) ** below, Fraction(2) ** (below + 1)
    above = below if low == amax else below + 1
    nearest = below if amax - low < high - amax else below + 1
    chosen = {"floor": below, "ceil": above, "nearest": nearest}[rule]
    return max(-127, min(127, chosen - floor_log2(largest)))


def samples(block: int) -> np.ndarray:
    """Blocks of many sizes, powers of two and their neighbours as maxima, ties of elements, zeros, extremes."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=block) * 2.0**k for k in (-130, -20, -1, 0, 5, 126)]
    rows += [np.linspace(-top, top, block) for top in (1.0, 1.5, np.nextafter(1.5, 1), np.nextafter(2, 1), 1.125, 448)]
    rows += [np.zeros(block), np.full(block, -0.0), np.arange(block) * 0.25, 2.0 ** -np.arange(block)]
    rows += [np.full(block, 1e300), np.full(block, 1e-300), np.where(np.arange(block) == 3, 1.99609375, 0)]
    return np.array(rows)


@pytest.mark.parametrize("rule", SCALE_RULES)
@pytest.mark.parametrize("name", MX)
def test_mx(name, rule):
    x, row = samples(32), BLOCKS[name]
    found = encode(x, name, scale_rule=rule)
    assert (found.codes.shape, found.scales.shape, found.tensor_scale) == (x.shape, (len(x), 1), None)
    values = decode(found, name)
    for i, block in enumerate(x):
        amax = max(abs(Fraction(v)) for v in block)
        exponent = scale_exponent(amax, Fraction(LARGEST[name]), rule)
        assert found.scales[i, 0] == exponent + 127
        for j, v in enumerate(block):
            sign, magnitude = oracle.number(float(v))
            scaled = oracle.Value(sign, magnitude / Fraction(2) ** exponent)
            assert found.codes[i, j] == oracle.encode(scaled, row.element, overflow="satfinite"), (i, j)
            element = oracle.decode(int(found.codes[i, j]), row.element)
            exact = oracle.Value(element.sign, element.magnitude * Fraction(2) ** exponent)
            assert oracle.number(float(values[i, j])) == exact


def test_ceil_never_saturates_and_floor_does():
    x = np.full(32, 1.999)
    for name in MX:
        top = np.uint8(oracle.largest(BLOCKS[name].element))
        assert (encode(x, name, scale_rule="floor").codes == top).all()
        assert (encode(x, name, scale_rule="ceil").codes < top).all()


def test_scale_codes_that_libraries_disagree_on():
    """1.99609375 through bf16 became 2; 1.125 is 1 or 2; NaN scales became infinity."""
    amax = np.array([0x3FFF8000], np.uint32).view(np.float32)
    assert power_scale(amax, 0, "floor").tolist() == [0x7F]
    assert power_scale(amax, 0, "nearest").tolist() == power_scale(amax, 0, "ceil").tolist() == [0x80]
    codes = {rule: int(power_scale(1.125, 0, rule)) for rule in SCALE_RULES}
    assert codes == {"floor": 0x7F, "ceil": 0x80, "nearest": 0x7F}
    assert int(power_scale(1.5, 0, "nearest")) == 0x80
    assert int(power_scale(2.0**200, 0, "floor")) == 254
    assert np.isnan(lp.decode(0xFF, "e8m0"))
    nan_scale = Blocks(np.zeros(32, np.uint8), np.array([0xFF], np.uint8), None)
    assert np.isnan(decode(nan_scale, "mxfp4")).all()


def nearest_f32(x: Fraction) -> Fraction:
    return oracle.decode(oracle.encode(oracle.number(x), FP32), FP32).magnitude


@pytest.mark.parametrize("given", [None, 0.25, np.float32(3e-3)])
def test_nvfp4(given):
    x = samples(16)[:, :16]
    x = x[np.abs(x).max(axis=1) < 1e30]
    found = encode(x, "nvfp4", tensor_scale=given)
    whole = nearest_f32(max(abs(Fraction(v)) for v in x.flat) / (448 * 6)) if given is None else Fraction(float(given))
    assert Fraction(float(found.tensor_scale)) == whole
    values = decode(found, "nvfp4")
    for i, block in enumerate(x):
        amax = max(abs(Fraction(v)) for v in block)
        code = oracle.encode(oracle.number(amax / (6 * whole)), UE4M3, overflow="satfinite")
        assert found.scales[i, 0] == code
        factor = oracle.decode(code, UE4M3).magnitude * whole
        for j, v in enumerate(block):
            sign, magnitude = oracle.number(float(v))
            element = oracle.Value(sign, magnitude / factor if factor else Fraction(0))
            assert found.codes[i, j] == oracle.encode(element, E2M1, overflow="satfinite"), (i, j)
            exact = oracle.decode(int(found.codes[i, j]), E2M1)
            assert oracle.number(float(values[i, j])) == oracle.Value(exact.sign, exact.magnitude * factor)


def test_nvfp4_divides_by_the_exact_product_of_its_scales():
    """Ties of elements, and a product of scales that no float32 holds: rounded to one, no tie would be left."""
    whole = np.float32(3e-3)
    factor = float(whole) * 1.125
    assert float(np.float32(factor)) != factor
    found = encode(np.array([6, 2.5, 3.5, 1.75, 1.25, 0.75, 0.25, 5] * 2) * factor, "nvfp4", tensor_scale=whole)
    assert lp.decode(found.scales, "ue4m3").tolist() == [1.125]
    assert lp.decode(found.codes[:8], "e2m1").tolist() == [6, 2, 4, 2, 1, 1, 0, 4]


def test_nvfp4_of_zeros():
    found = encode(np.array([0.0, -0.0] * 8), "nvfp4")
    assert found.tensor_scale == 1
    assert found.scales.tolist() == [0]
    assert found.codes.tolist() == [0, 8] * 8
    assert not decode(found, "nvfp4").any()


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_any_axis(axis):
    x = np.random.default_rng(1).normal(size=(64, 96, 32)).astype(np.float32)[:, :, :3]
    x = x if axis in (0, 1, -2) else np.swapaxes(x, 0, 2)
    found = encode(x, "mxfp8_e4m3", scale_rule="floor", axis=axis)
    last = encode(np.moveaxis(x, axis, -1), "mxfp8_e4m3", scale_rule="floor")
    assert np.array_equal(found.codes, np.moveaxis(last.codes, -1, axis))
    assert np.array_equal(found.scales, np.moveaxis(last.scales, -1, axis))
    values = decode(found, "mxfp8_e4m3", axis=axis)
    assert np.array_equal(values, np.moveaxis(decode(last, "mxfp8_e4m3"), -1, axis))
    again = encode(values, "mxfp8_e4m3", scale_rule="floor", axis=axis)
    assert np.array_equal(decode(again, "mxfp8_e4m3", axis=axis), values), "what is on the grid stays"


def test_nan_and_infinity():
    x = np.ones((2, 64))
    x[0, 5], x[1, 40] = np.nan, -np.inf
    with pytest.raises(ValueError, match="nonfinite"):
        encode(x, "mxfp4", scale_rule="floor")
    found = encode(x, "mxfp4", scale_rule="floor", nonfinite="block")
    assert (found.scales == 0xFF).tolist() == [[True, False], [False, True]]
    assert np.isnan(decode(found, "mxfp4")).reshape(2, 2, 32).all(axis=-1).tolist() == [[True, False], [False, True]]
    found = encode(x, "mxfp8_e4m3", scale_rule="floor", nonfinite="element")
    values = decode(found, "mxfp8_e4m3")
    assert np.isnan(values).sum() == 1
    assert np.isnan(values[0, 5])
    assert values[1, 40] == -448 * 2.0**-8
    assert (found.scales == 127 - 8).all()
    found = encode(x, "nvfp4", nonfinite="block")
    assert (found.scales == 0x7F).sum() == 2
    assert found.tensor_scale == np.float32(1 / 2688)
    with pytest.raises(ValueError, match="no NaN"):
        encode(x, "mxfp4", scale_rule="floor", nonfinite="element")


def test_what_is_refused():
    x = np.ones((4, 48), np.float32)
    with pytest.raises(ValueError, match="scale_rule"):
        encode(x[:, :32], "mxfp4")
    with pytest.raises(ValueError, match="floor"):
        encode(x[:, :32], "mxfp4", scale_rule="flor")
    with pytest.raises(ValueError, match=r"48.*block of 32"):
        encode(x, "mxfp4", scale_rule="floor")
    with pytest.raises(ValueError, match="axis"):
        encode(x, "nvfp4", axis=2)
    with pytest.raises(ValueError, match="scale rule"):
        encode(x, "nvfp4", scale_rule="ceil")
    with pytest.raises(ValueError, match="tensor scale"):
        encode(x[:, :32], "mxfp4", scale_rule="floor", tensor_scale=1.0)
    for bad in (0.0, -1.0, np.inf, 0.1):
        with pytest.raises(ValueError, match="tensor_scale"):
            encode(x, "nvfp4", tensor_scale=bad)
    with pytest.raises(ValueError, match="mxfp4"):
        encode(x, "mxfp5", scale_rule="floor")
    with pytest.raises(TypeError, match="int64"):
        encode(np.ones(32, np.int64), "mxfp4", scale_rule="floor")
    good = encode(x, "nvfp4")
    with pytest.raises(ValueError, match="tensor scale"):
        decode(Blocks(good.codes, good.scales, None), "nvfp4")
    with pytest.raises(ValueError, match="fit"):
        decode(Blocks(good.codes, good.scales[:2], good.tensor_scale), "nvfp4")


def test_torch_tensors(torch):
    x = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float32)
    found = lp.blocks.encode(torch.from_numpy(x), "mxfp6_e3m2", scale_rule="ceil")
    wanted = lp.blocks.encode(x, "mxfp6_e3m2", scale_rule="ceil")
    assert isinstance(found.codes, torch.Tensor)
    assert np.array_equal(found.codes.numpy(), wanted.codes)
    values = lp.blocks.decode(found, "mxfp6_e3m2")
    assert isinstance(values, torch.Tensor)
    assert np.array_equal(values.numpy(), decode(wanted, "mxfp6_e3m2"))

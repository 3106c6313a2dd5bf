"""The coefficient tables: what the script derives from the recordings, and every recorded result again."""

import zlib

import numpy as np
import pytest

from lpsim._jit import njit
from lpsim.core import special_mufu
from lpsim.core.special_tables import TABLES, packed
from script_modules import script_module

#: CRC-32 over all 2^23 fractions of one binade, as int32; the same on earlier generations of the unit.
#: name -> (fingerprint, function, code of fraction 0, code of a result of 2^23)
FINGERPRINTS = {
    "ex2_1_2": ("5af3d02b", special_mufu._ex2_fraction, (), 0x7FFFFF),
    "rcp_1_2": ("e30d08e6", special_mufu._rcp_fraction, (), -1),
    "rsqrt_1_2": ("a51e1eef", special_mufu._rsqrt_fraction, (0,), -1),
    "rsqrt_2_4": ("34186fb4", special_mufu._rsqrt_fraction, (1,), -1),
    "sqrt_1_2": ("72a042ca", special_mufu._sqrt_fraction, (0,), -1),
    "sqrt_2_4": ("d027ccd9", special_mufu._sqrt_fraction, (1,), -1),
}


@pytest.fixture(scope="module")
def script():
    return script_module("derive_mufu_tables")


@njit
def results(function, before, out):
    for fraction in range(len(out)):
        out[fraction] = function(*before, fraction)


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_all_fractions_have_the_fingerprint_of_the_unit(name):
    fingerprint, function, parity, mask = FINGERPRINTS[name]
    y = np.empty(1 << 23, np.int32)
    results(function, parity, y)
    assert f"{zlib.crc32((y & mask).astype('<i4').tobytes()):08x}" == fingerprint
    assert TABLES[name]["crc32_of_int32_results"] == fingerprint


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_recording_has_the_same_fingerprint(name, script):
    assert script.crc32(name, script.recorded(name)) == FINGERPRINTS[name][0]


def test_script_derives_the_file_that_is_shipped(script):
    assert script.document() == script.TABLES.read_text()


def test_a_wrong_recording_has_no_solution(script):
    shape = script.SHAPES["rcp_1_2"]
    y = script.recorded("rcp_1_2")[: 1 << 16].copy()
    xl = np.arange(1 << 16, dtype=np.int64)
    square = np.array([script.squarer(2 * int(x)) for x in xl])
    table = TABLES["rcp_1_2"]
    assert script.solve_segment(y, xl, square, 0, shape) == (table["c0"][0], table["c1"][0], table["c2"][0])
    y[12345] += 1
    with pytest.raises(RuntimeError, match="0 solutions"):
        script.solve_segment(y, xl, square, 0, shape)


def test_an_offset_that_would_lose_bits_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        packed(1, "ex2_1_2")

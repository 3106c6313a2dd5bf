"""The plan of a tl.dot: which instruction, how k is grouped, where the accumulator goes in; and its execution."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import data, dot_kinds, replay_dots, tl_dot, tl_dot_run
from lpsim.machines import dot_row
from lpsim.tl_dot import Step, plan
from lpsim.verify import difference

H200 = lp.machine("h200")


@pytest.mark.parametrize(
    ("m", "n", "warps", "fmt", "path"),
    [
        (64, 16, 4, "bf16", "wgmma"),
        (64, 8, 4, "bf16", "mma"),
        (32, 64, 4, "fp16", "mma"),
        (64, 256, 8, "fp16", "wgmma"),
        (64, 64, 2, "fp32", "mma"),
        (64, 64, 1, "e4m3fn", "mma"),
        (64, 16, 16, "e4m3fn", "wgmma"),
        (128, 128, 4, "int8", "wgmma"),
        (16, 128, 4, "int8", "mma"),
        (128, 128, 4, "fp64", "mma"),
    ],
)
def test_which_instruction(m, n, warps, fmt, path):
    """As read off the code that Triton 3.6.0 generates for these tiles."""
    found = plan(m, n, 64, fmt, num_warps=warps)
    assert found.path == path
    assert found.unit == dot_row("h200", path, "tf32" if fmt == "fp32" else fmt).unit
    assert found.steps == (Step("dot", "acc", "acc", stop=64),)


def test_versions_of_triton_differ_in_narrow_tiles():
    for n, path in ((4, "mma"), (8, "wgmma"), (16, "wgmma")):
        assert plan(64, n, 64, "e4m3fn", triton="3.9").path == path
    assert plan(64, 16, 64, "e4m3fn", triton="3.9") == plan(64, 16, 64, "e4m3fn")
    assert plan(64, 8, 64, "e4m3fn", triton="3.9").unit != plan(64, 8, 64, "e4m3fn").unit
    with pytest.raises(ValueError, match="triton="):
        plan(64, 64, 64, "e4m3fn", triton="3.7")


def lines(*arguments, **options):
    return str(plan(64, 64, *arguments, **options)).splitlines()


def test_fp8_promotes_or_goes_to_fp16():
    assert lines(128, "e4m3fn") == ["wgmma, e4m3fn -> fp32", "  acc = dot(a0, b0, k 0..127) on acc"]
    promoted = ["  part = dot(a0, b0, k 0..95) on zero", "  acc = acc + part"]
    promoted += ["  part = dot(a0, b0, k 96..127) on zero", "  acc = acc + part"]
    for limit in (65, 96):  # whole instructions of 32 are counted
        assert lines(128, "e4m3fn", max_num_imprecise_acc=limit)[1:] == promoted
    assert lines(64, "e4m3fn", max_num_imprecise_acc=32, form="added")[1:] == [
        "  sum = dot(a0, b0, k 0..31) on zero",
        "  part = dot(a0, b0, k 32..63) on zero",
        "  sum = sum + part",
        "  acc = acc + sum",
    ]
    assert len(plan(64, 64, 128, "e5m2", max_num_imprecise_acc=128).steps) == 2
    assert len(plan(64, 64, 128, "e5m2", max_num_imprecise_acc=32).steps) == 8
    for limit in (0, 16):
        assert lines(128, "e4m3fn", max_num_imprecise_acc=limit)[0] == "mma, e4m3fn -> fp32"
    assert len(plan(64, 64, 128, "e5m2", max_num_imprecise_acc=32, out_dtype="fp16").steps) == 1
    assert lines(64, "e4m3fn", "e5m2")[0] == "wgmma, e4m3fn x e5m2 -> fp32"


def test_where_the_accumulator_goes_in():
    for fmt in ("bf16", "fp16", "fp32", "fp64"):
        assert plan(64, 64, 64, fmt, form="added") == plan(64, 64, 64, fmt)
    late = ["  sum = dot(a0, b0, k 0..63) on zero", "  acc = acc + sum"]
    assert lines(64, "e4m3fn", form="added")[1:] == late
    assert lines(64, "e4m3fn", form="added", num_warps=1) == ["mma, e4m3fn -> fp32", *late]
    assert lines(64, "bf16", form="added", max_num_imprecise_acc=32)[1:] == late
    assert lines(64, "e4m3fn", form="added", max_num_imprecise_acc=0)[1:] == ["  acc = dot(a0, b0, k 0..63) on acc"]


def test_how_fp32_is_split():
    assert lines(32, "fp32", input_precision="tf32x3") == [
        "wgmma, tf32 -> fp32, operands split by tf32x3",
        "  part = dot(a1, b0, k 0..31) on zero",
        "  part = dot(a0, b1, k 0..31) on part",
        "  NaN in part to 0",
        "  part = dot(a0, b0, k 0..31) on part",
        "  acc = acc + part",
    ]
    pairs = [(step.a, step.b) for step in plan(64, 64, 32, "fp32", input_precision="bf16x6").steps if step.op == "dot"]
    assert pairs == [(1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)]
    assert lines(32, "fp32", input_precision="ieee")[0] == "ffma, fp32 -> fp32"
    assert plan(64, 64, 32, "bf16", input_precision="ieee") == plan(64, 64, 32, "bf16")


@pytest.mark.parametrize(
    ("error", "words", "arguments", "options"),
    [
        (ValueError, "powers of two", (48, 64, 32, "bf16"), {}),
        (ValueError, "k >= 32", (64, 64, 16, "e4m3fn"), {}),
        (ValueError, "at most k", (64, 64, 32, "e4m3fn"), {"max_num_imprecise_acc": 64}),
        (ValueError, "mixes fp8", (64, 64, 32, "bf16", "fp16"), {}),
        (ValueError, "out_dtype", (64, 64, 32, "bf16"), {"out_dtype": "fp16"}),
        (ValueError, "tf32x3", (64, 64, 32, "fp32"), {"input_precision": "tf32x2"}),
        (ValueError, "chained", (64, 64, 32, "fp32"), {"form": "chain"}),
        (ValueError, "e5m2", (64, 64, 32, "e3m2"), {}),
        (lp.NotModelled, "sm_90", (64, 64, 32, "bf16"), {"machine": "a100"}),
    ],
)
def test_what_is_refused(error, words, arguments, options):
    with pytest.raises(error, match=words):
        plan(*arguments, **options)


def test_every_recorded_bit():
    """All options, accumulators and formats that crosscheck_dots keeps from an H200, tl.dot_scaled among them."""
    compared, differing, operations = 0, [], set()
    for result in replay_dots.replay():
        count, example = difference(*map(replay_dots.without_payload, (result.found, result.recorded)))
        compared += result.recorded.size
        operations.add(result.operation)
        if count:
            differing.append((result.operation, result.inputs, example))
    assert differing == []
    assert compared > 8000
    assert len(operations) > 50


def test_the_live_run_found_no_difference():
    report = data.description("dots_live")
    assert sum(run["compared"] for run in report["runs"]) > 10**9
    assert [run["operation"] for run in report["runs"] if run["differing"]] == []


@pytest.mark.parametrize(
    "change",
    [
        {"input_precision": "tf32x3", "steps": lambda s: [x for x in s if x.op != "clear_nan"]},
        {
            "input_precision": "bf16x3",
            "steps": lambda s: [s[1]._replace(source="zero"), s[0]._replace(source="part"), *s[2:]],
        },
        {"max_num_imprecise_acc": 32, "steps": lambda s: [s[0]._replace(source="acc", target="acc", stop=128)]},
    ],
)
def test_recordings_tell_other_plans_apart(change, monkeypatch):
    """Each part of a plan shows: without it the recordings differ."""
    original = tl_dot._steps
    monkeypatch.setattr(tl_dot, "_steps", lambda *a, **k: tuple(change["steps"](original(*a, **k))))
    name, value = next(iter(change.items()))
    runs, arrays = data.description("dots_live")["runs"], data.arrays("dots_live")
    numbers = [i for i, run in enumerate(runs) if run.get(name) == value and run.get("form") == "chained"]
    wrong = 0
    for key in arrays:
        number, kind, part = key.split("|")
        if int(number) in numbers and part == "D":
            stored = {x: arrays[f"{number}|{kind}|{x}"] for x in "ABCD"}
            wrong += difference(replay_dots.computed(runs[int(number)], stored), stored["D"])[0]
    assert wrong > 0


def test_a_kernels_loop_over_tiles():
    """K in tiles of 32, the last one filled with zeros: tile after tile on the live accumulator."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((70, 72)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((72, 40)).astype(ml_dtypes.bfloat16)
    acc = rng.standard_normal((70, 40)).astype(np.float32)
    found = H200.tl_dot(a, b, acc, block=(64, 64, 32))
    by_hand = acc
    for first in (0, 32, 64):
        by_hand = H200.dot(a[:, first : first + 32], b[first : first + 32], by_hand)
    np.testing.assert_array_equal(found, by_hand)
    np.testing.assert_array_equal(found, H200.tl_dot(a, b, acc))  # one tile: the same chain
    late = H200.tl_dot(a, b, acc, block=(64, 64, 32), input_precision="ieee", form="added")
    np.testing.assert_array_equal(found, late)  # neither concerns bf16


def test_parts_of_fp32():
    x = np.array([1 + 2.0**-11, 1.0 + 2.0**-12 + 2.0**-23, -3.0e38, np.inf, np.nan, 2.0**-140], np.float32)
    large, rest = tl_dot_run.parts(x, "tf32x3")
    assert large[:2].tolist() == [0x3F802000, 0x3F800000]
    assert Fraction(float(rest.view(np.float32)[1])) == Fraction(2) ** -12 + Fraction(2) ** -23
    assert np.isnan(rest.view(np.float32)[3:5]).all()
    three = tl_dot_run.parts(x[:3], "bf16x6")
    values = [np.asarray(lp.decode(codes, "bf16")) for codes in three]
    np.testing.assert_array_equal(sum(values), x[:3].astype(float))  # three bf16 hold a float32
    assert tl_dot_run.parts(x, "tf32")[0].tolist() == x.view(np.uint32).tolist()


def test_dot_scaled_as_triton_emulates_it():
    a = np.array([[0x38] * 32], np.uint8)  # 1.0 in e4m3fn
    one = np.full((1, 1), 127, np.uint8)

    def scaled(codes, scale, name, **options):
        arguments = (a, one, codes, np.full((1, 1), scale, np.uint8))
        return H200.tl_dot_scaled(*arguments, a_fmt="e4m3fn", b_fmt=name, **options)[0, 0]

    column = np.zeros((32, 1), np.uint8)
    column[0] = 0x7C  # infinity in e5m2, a finite number in bf16
    assert scaled(column, 127, "e5m2") == 65536.0
    column[0] = 0x38
    assert scaled(column, 130, "e4m3fn") == 8.0
    assert scaled(column, 0, "e4m3fn") == 0.0  # 2^-127 is lost: the scale's code 0 becomes zero
    assert np.isnan(scaled(column, 255, "e4m3fn"))
    assert scaled(column, 255, "e4m3fn", fast_math=True) != scaled(column, 127, "e4m3fn")
    with pytest.raises(lp.NotModelled, match="order of k"):
        H200.tl_dot_scaled(a & 7, one, column & 7, one, fmt="e2m1", num_warps=1)
    with pytest.raises(ValueError, match="32 consecutive k"):
        H200.tl_dot_scaled(a[:, :16], one, column[:16], one, fmt="e4m3fn")
    with pytest.raises(lp.NotModelled, match="sm_90"):
        lp.machine("b200").tl_dot_scaled(a, one, column, one, fmt="e4m3fn")


def test_mixed_fp8_is_one_instruction():
    """The same products as with both operands in one format, where both hold the values."""
    rng = np.random.default_rng(8)
    x = (2.0 ** rng.integers(-6, 3, (8, 64)) * rng.choice([-1.5, 1.0], (8, 64))).astype(np.float32)
    a, b = (x.astype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
    np.testing.assert_array_equal(H200.dot(a, b.T), H200.dot(a, a.T))
    np.testing.assert_array_equal(H200.dot(b, a.T, path="mma"), H200.dot(a, a.T, path="mma"))


def test_a_plan_runs_on_batches():
    chosen = plan(16, 16, 16, "fp64")
    a, b = np.ones((2, 3, 16)), np.full((16, 2), 0.5)
    assert (tl_dot_run.run(chosen, a, b, None) == 8.0).all()
    assert tl_dot_run.run(chosen, a, b, np.ones((2, 3, 2))).tolist() == np.full((2, 3, 2), 9.0).tolist()
    row = dot_row("h200", "wgmma", "int8")
    wrapped = dot_kinds.dot(
        np.full((1, 1), 1, np.int8), np.full((1, 1), 1, np.int8), np.int32(2**31 - 1), row.unit, None, None
    )
    assert wrapped == -(2**31)

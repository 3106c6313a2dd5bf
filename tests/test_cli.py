"""The command line: what it prints, how it refuses, its exit status; in this process and in one of its own."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lpsim as lp
from lpsim import cli
from lpsim.cli import expression

ROOT = Path(__file__).parents[1]


def run(*arguments: str):
    """A command in this process; rich's colours are off, since its output is no terminal."""
    return CliRunner().invoke(cli.app, list(arguments))


def lpsim(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "lpsim", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_explain_in_a_process_of_its_own(tmp_path):
    done = lpsim("explain", "-2.40625 + -2.296875", "--fmt", "bf16", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip() == str(lp.explain.add(-2.40625, -2.296875, "bf16"))
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


def test_an_error_in_a_process_of_its_own():
    done = lpsim("explain", "1", "--fmt", "bf61")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Did you mean 'bf16'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["449", "--fmt", "e4m3fn"], lambda: lp.explain.encode(449.0, "e4m3fn")),
        (["-449", "--fmt", "e4m3fn"], lambda: lp.explain.encode(-449.0, "e4m3fn")),
        (["-2.40625 + -2.296875"], lambda: lp.explain.add(-2.40625, -2.296875, "bf16")),
        (["1.5*-2.25", "--fmt=fp16"], lambda: lp.explain.mul(1.5, -2.25, "fp16")),
        (["1 - 3e-3", "--rounding", "rtz"], lambda: lp.explain.sub(1.0, 3e-3, "bf16", rounding="rtz")),
        (["1/3"], lambda: lp.explain.div(1.0, 3.0, "bf16")),
        (["sqrt(2)"], lambda: lp.explain.sqrt(2.0, "bf16")),
        (["fma( 1.5, 2, -0x1.8p-3 )"], lambda: lp.explain.fma(1.5, 2.0, -0.1875, "bf16")),
        (["0.1", "--fmt", "fp32"], lambda: lp.explain.encode(Fraction(1, 10), "fp32")),
        (["1e6", "--fmt", "e4m3fn", "--overflow", "satfinite"],
         lambda: lp.explain.encode(1e6, "e4m3fn", overflow="satfinite")),
        (["nan", "--nan", "nvidia"], lambda: lp.explain.encode(float("nan"), "bf16", nan="nvidia")),
        (["-inf"], lambda: lp.explain.encode(float("-inf"), "bf16")),
        (["0e5"], lambda: lp.explain.encode(0.0, "bf16")),
        (["-infinity"], lambda: lp.explain.encode(float("-inf"), "bf16")),
        (["-0.0"], lambda: lp.explain.encode(-0.0, "bf16")),
    ],
)  # fmt: skip
def test_explain(arguments, wanted):
    done = run("explain", *arguments)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.rstrip() == str(wanted())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["1 + "], ["'1 + '", "not an expression", "sqrt(a)"]),
        (["1 ** 2"], ["'1 ** 2'"]),
        (["1 + 2 + 3"], ["not an expression"]),
        (["__import__('os')"], ["not an expression"]),
        (["x"], ["not an expression"]),
        ([""], ["not an expression"]),
        (["sqrt(1, 2)"], ["sqrt takes 1 number", "got 2"]),
        (["fma(1, 2)"], ["fma takes 3 numbers", "got 2"]),
        (["0x"], ["0x"]),
        (["0x1.2.3"], ["0x1.2.3"]),
        (["0x1p99999"], ["0x1p99999", "too large"]),
        (["1e400"], ["1e400", "write inf"]),
        (["1 + -1e999999999"], ["-1e999999999", "write inf"]),
        (["1e-999999999"], ["1e-999999999", "write 0"]),
        (["0x1p-2000 * 2"], ["0x1p-2000", "write 0"]),
        (["1", "--fmt", "fp64"], ["fp64"]),
        (["1", "--rounding", "rnee"], ["rounding='rnee'", "rne"]),
        (["1", "--overflow", "sat"], ["overflow='sat'", "saturate"]),
        (["1", "--nan", "quiet"], ["nan='quiet'", "canonical"]),
    ],
)
def test_explain_refuses(arguments, words):
    done = run("explain", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr.replace("\n", " "), done.stderr


def test_numbers_are_read_exactly():
    tenth = expression.evaluate("0.1", "fp32")
    assert tenth.error == Fraction(13421773, 1 << 27) - Fraction(1, 10)
    assert expression.evaluate("16777217.0000000001", "fp32").value == 16777218.0  # binary64 would make it a tie
    assert expression.evaluate("0x1.000001p0", "fp32").value == 1.0
    assert expression.number("-0x1.8p-3") == -0.1875


def test_formats_lists_every_format():
    done = run("formats")
    assert done.exit_code == 0
    for name in lp.FORMATS:
        assert name in done.stdout
    assert "448" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["explain", "--help"], ["demo", "--help"], []])
def test_help(arguments):
    done = run(*arguments)
    text = done.stdout + done.stderr
    assert done.exit_code == (0 if arguments else 2)
    for word in ("explain", "demo", "formats") if len(arguments) < 2 else ("Usage", "--"):
        assert word in text


def test_an_unknown_command():
    done = run("explian", "1")
    assert done.exit_code == 2
    assert "explian" in done.stderr

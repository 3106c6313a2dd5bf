"""Rows that the tests exhaust: the registered formats, and every special case a row can express."""

from lpsim.formats import FORMATS, Format, ieee


def p3109(bits: int, precision: int, signed=1, infinity=1) -> Format:
    """binaryKpP: one NaN (in place of -0, or at the top if unsigned), one zero. Source: IEEE P3109, 4.1."""
    bias = 1 << (bits - precision - signed)
    return Format(bits, precision, bias, nans=1 - signed, infinity=infinity, signed=signed, negative_zero=0)


#: formats of 8 bits or less, written down from their definitions a second time, and small ones of our own
ROWS: dict[str, Format] = {
    "e4m3fnuz": Format(8, 4, 8, negative_zero=0),
    "e5m2fnuz": Format(8, 3, 16, negative_zero=0),
    "e4m3": ieee(8, 4),
    "e3m4": ieee(8, 5),
    "e8m0": Format(8, 1, 127, nans=1, signed=0, zero=0, negative_zero=0, subnormals=0),
    "ue4m3": Format(7, 4, 7, nans=1, signed=0, negative_zero=0),
    "e3m2": Format(6, 3, 3),
    "e2m3": Format(6, 4, 1),
    "e2m1": Format(4, 2, 1),
    "binary8p1se": p3109(8, 1),
    "binary8p3se": p3109(8, 3),
    "binary8p4sf": p3109(8, 4, infinity=0),
    "binary8p5ue": p3109(8, 5, signed=0),
    "binary6p3uf": p3109(6, 3, signed=0, infinity=0),
    "ieee8p2": ieee(8, 2),
    "ieee5p3": ieee(5, 3),
    "ieee5p2": ieee(5, 2),
    "binary5p3se": p3109(5, 3),
    "padded5": ieee(5, 3)._replace(pad=2),
}
ROWS.update({name: row for name, row in FORMATS.items() if row.bits <= 8 and name not in ROWS})
WIDE: dict[str, Format] = {name: FORMATS[name] for name in ("bf16", "fp16", "tf32", "fp32")}


def containers(fmt: Format) -> range:
    """All codes in container form. For formats of at most 19 bits."""
    return range(0, 1 << (fmt.bits + fmt.pad), 1 << fmt.pad)

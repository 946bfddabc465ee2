"""Checks notebooks_export/dsv4_dump.py: its tables by formula, and a dump against values decoded elsewhere."""

import os
import sys

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../notebooks_export"))
import dsv4_dump  # noqa: E402


def check_tables():
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        table = float(dsv4_dump.E4M3[code])
        if code & 0x7F == 0x7F:
            assert np.isnan(table)
        else:
            assert abs(table) == value and np.signbit(table) == bool(code & 0x80), code
        scale = float(dsv4_dump.E8M0[code])
        assert np.isnan(scale) if code == 255 else scale == 2.0 ** (code - 127), code
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert [float(v) for v in dsv4_dump.E2M1[:8]] == positive
    assert [-float(v) for v in dsv4_dump.E2M1[8:]] == positive and np.signbit(dsv4_dump.E2M1[8])
    assert list(dsv4_dump.unpack_e2m1([0x21, 0xF0])) == [1, 2, 0, 15]


def canonical_bits(values, kind, nan):
    bits = np.ascontiguousarray(values).view(kind).copy()
    bits[np.isnan(values)] = nan
    return bits


def check_dump(path, expected):
    dump = dsv4_dump.Dump(path)
    compared = 0
    for line in open(expected):
        name, dtype, *words = line.split()
        want = np.array([int(word, 16) for word in words], np.uint64)
        if dtype == "rows":
            source, decoder = {"kv_rows": ("kv.window/page_bytes", dsv4_dump.decode_kv_rows),
                               "index_rows": ("indexer.finish/page_bytes", dsv4_dump.decode_index_rows)}[name]
            got = canonical_bits(decoder(dump.bits(0, 1, source)), np.uint32, 0x7FC00000)
        else:
            assert dump.info(0, 1, name).dtype == dtype, name
            got = canonical_bits(dump.values(0, 1, name).astype(np.float64), np.uint64, 0x7FF8000000000000)
        assert np.array_equal(got.reshape(-1).astype(np.uint64), want), name
        compared += want.size
    assert compared > 65536 + 256 * 512, compared

    assert dump.steps == [0, 3] and dump.complete and dump.seed == 0xFEDCBA9876543210
    assert dump.requests == ["a", "a longer name", "a"] and dump.ratios == [0, 4, 128]
    assert dump.scenario == "name: sample\n# \u00e9\n"
    assert dump.config["dim"] == 256 and dump.config["softmax"] == "online64_bf16_p"
    assert dump.config["eps"] == float(np.float32(1e-6)) and dump.config["c4_state"] == "page4align"
    assert dump.event(0) == {"prefill": {"request": "a", "tokens": 256}}
    assert len(dump.event(3)["free"]) == 100000
    assert dump.meaning(0, 1, "indexer.query/weights", (1, 3)) == {
        "token": 1, "head": 3, "request": "a", "position": 12}
    assert dump.meaning(0, 1, "indexer.query/weights", (255, 0))["request"] is None
    assert dump.meaning(0, 1, "compress.finish/entry", (1, 5)) == {
        "entry": 1, "dim": 5, "request": "a", "index": 3, "positions": (12, 15)}
    assert list(dump.tokens(0)) == list(range(255))
    names = [info.name for info in dump.tensors(0) if info.layer == 1]
    assert "codes" in names and "q.unrounded" in names
    assert dump.unrounded(0, 1, "q.up/q").dtype == np.float64
    assert set(dump.state_digests(0, 1)) == {"window", "index_state"}
    try:
        dump.values(1, 0, "q.up/q")
        raise AssertionError("a missing step was read")
    except KeyError as error:
        assert "no step 1" in str(error)


def check_error():
    assert dsv4_dump.relative_error([3.0, 4.0], [3.0, 4.0]) == 0.0
    assert dsv4_dump.relative_error([3.0, 5.0], [3.0, 4.0]) == 0.2
    assert dsv4_dump.relative_error([np.inf, 1.0], [np.inf, 1.0]) == 0.0
    assert dsv4_dump.relative_error([np.inf, 1.0], [1.0, 1.0]) == np.inf
    assert dsv4_dump.relative_error([0.0], [0.0]) == 0.0


check_tables()
check_dump(sys.argv[1], sys.argv[2])
check_error()

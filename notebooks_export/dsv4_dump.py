"""Reads dumps of dsv4-oracle (docs/dump-format.md) with nothing but numpy and h5py.

    from dsv4_dump import Dump

    dump = Dump("run.h5")
    dump.tensors(0)                          # what step 0 holds
    dump.values(0, 1, "q.up/q")              # decoded: float32, float64 or int32
    dump.bits(0, 1, "q.up/q")                # as stored
    dump.meaning(0, 1, "q.up/q", (3, 0, 7))  # {'token': 3, 'request': 'a', 'position': 3, 'head': 0, 'dim': 7}

Narrow floats are stored as raw bits. They are decoded by tables that are built from bit patterns, so that signed
zeros and NaN survive; no table comes from arithmetic in another float format.
"""

import json
import os
from collections import namedtuple

import h5py
import numpy as np

SCHEMA = "dsv4-dump/1"

TensorInfo = namedtuple("TensorInfo", "path step layer stage name dtype dims shape role digest")


# ------------------------------------------------------------------------------------------------ formats

def _small_float_table(exponent_bits, mantissa_bits, bias):
    """Float32 values of all codes of a sign-exponent-mantissa format, put together as float32 bit patterns."""
    count = 1 << (1 + exponent_bits + mantissa_bits)
    table = np.zeros(count, np.uint32)
    for code in range(count):
        sign = code >> (exponent_bits + mantissa_bits)
        exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
        mantissa = code & ((1 << mantissa_bits) - 1)
        if exponent == 0 and mantissa != 0:  # subnormal: normalise, as float32 has room for it
            shift = mantissa_bits + 1 - mantissa.bit_length()
            mantissa = mantissa << shift & ((1 << mantissa_bits) - 1)
            exponent = 1 - shift
        elif exponent == 0:
            table[code] = sign << 31
            continue
        table[code] = sign << 31 | (exponent - bias + 127) << 23 | mantissa << (23 - mantissa_bits)
    return table


def _e4m3_table():
    table = _small_float_table(4, 3, 7)
    table[0x7F] = 0x7FC00000  # the only NaN; there is no infinity
    table[0xFF] = 0xFFC00000
    return table.view(np.float32)


def _e8m0_table():
    table = np.arange(256, dtype=np.uint32) << 23
    table[0] = 0x00400000  # 2^-127 is subnormal in float32
    table[255] = 0x7FC00000
    return table.view(np.float32)


E2M1 = _small_float_table(2, 1, 1).view(np.float32)
E4M3 = _e4m3_table()
E8M0 = _e8m0_table()


def decode(bits, dtype):
    """Values of stored elements: float32 for floats of 32 bits and less, else as stored."""
    bits = np.asarray(bits)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype in ("float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn"):
        return {"float8_e4m3fn": E4M3, "float8_e8m0fnu": E8M0, "float4_e2m1fn": E2M1}[dtype][bits]
    if dtype in ("float32", "float64", "int32", "uint8"):
        return bits
    raise ValueError(f"unknown dtype {dtype!r}")


def unpack_e2m1(packed):
    """Codes of packed pairs, the even element in the low nibble: [..., n] -> [..., 2 n]."""
    packed = np.asarray(packed, np.uint8)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def decode_kv_rows(rows):
    """Dequantised values of KV rows: uint8 [..., 584] -> float32 [..., 512]."""
    rows = np.ascontiguousarray(rows, np.uint8)
    lead = rows.shape[:-1]
    scales = np.repeat(E8M0[rows[..., 576:583]], 64, axis=-1)
    rope = np.ascontiguousarray(rows[..., 448:576]).view("<u2").reshape(*lead, 64)
    with np.errstate(all="ignore"):  # scales that no quantiser writes may overflow
        return np.concatenate([E4M3[rows[..., :448]] * scales, decode(rope, "bfloat16")], axis=-1)


def decode_index_rows(rows):
    """Dequantised values of index rows: uint8 [..., 132] (FP8) or [..., 68] (FP4) -> float32 [..., 128]."""
    rows = np.ascontiguousarray(rows, np.uint8)
    if rows.shape[-1] == 132:
        scale = np.ascontiguousarray(rows[..., 128:]).view("<f4")
        with np.errstate(all="ignore"):
            return E4M3[rows[..., :128]] * scale
    if rows.shape[-1] == 68:
        return E2M1[unpack_e2m1(rows[..., :64])] * np.repeat(E8M0[rows[..., 64:]], 32, axis=-1)
    raise ValueError(f"an index row has 132 or 68 bytes, not {rows.shape[-1]}")


def kv_page_rows(page, count):
    """Rows of a KV page (values first, scales at the end): uint8 [bytes] -> [count, 584]."""
    page = np.asarray(page, np.uint8)
    values = page[: count * 576].reshape(count, 576)
    return np.concatenate([values, page[count * 576 : count * 584].reshape(count, 8)], axis=1)


# -------------------------------------------------------------------------------------------------- files

def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _plain(value):
    """An attribute as a Python value."""
    value = _text(value)
    return value.item() if isinstance(value, np.generic) else value


class Dump:
    """One dump, open for reading. Partial files (`complete` is False) open like whole ones."""

    def __init__(self, path):
        self.path = os.fspath(path)
        self.file = h5py.File(self.path, "r")
        schema = _text(self.file.attrs.get("schema", ""))
        if schema != SCHEMA:
            raise ValueError(f"{self.path}: schema is {schema!r}, this reader knows {SCHEMA!r}")
        root = {key: _plain(value) for key, value in self.file.attrs.items()}
        self.engine, self.profile, self.device = root["engine"], root["profile"], root["device"]
        self.seed, self.complete = root["seed"], bool(root["complete"])
        self.tool_version = root["tool_version"]
        self.scenario = bytes(self.file["scenario"][...]).decode()
        self.config = {key: _plain(value) for key, value in self.file["config"].attrs.items()}
        self.ratios = [int(self.file["config"][name].attrs["ratio"]) for name in sorted(self.file["config"])]
        self.requests = [_text(name) for name in self.file["requests"][...]]
        self.steps = sorted(int(name) for name in self.file["steps"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def event(self, step):
        """What happened in a step, as the JSON that the dump holds."""
        group = self.file[self._step(step)]
        if "event" in group:
            return json.loads(bytes(group["event"][...]).decode())
        return json.loads(_text(group.attrs["event"]))

    def batch(self, step):
        """Arrays request, position, slot, page [token] and prefix [copy, 3]; request -1 is padding."""
        group = self.file[self._step(step)].get("batch", {})
        return {name: group[name][...] for name in group}

    def tensors(self, step):
        """TensorInfo of everything a step published, in path order."""
        found = []
        group = self.file[self._step(step)]
        group.visititems(lambda name, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
        return sorted((self._info(item) for item in found), key=lambda info: info.path)

    def has(self, step, layer, name):
        return f"{self._step(step)}/layer_{layer:02}/{name}" in self.file

    def info(self, step, layer, name):
        return self._info(self._dataset(step, layer, name))

    def bits(self, step, layer, name):
        """Elements as stored: unsigned integers for narrow floats."""
        return self._dataset(step, layer, name)[...]

    def values(self, step, layer, name):
        """Decoded elements of, for example, 'q.up/q'."""
        dataset = self._dataset(step, layer, name)
        return decode(dataset[...], _text(dataset.attrs["dtype"]))

    def unrounded(self, step, layer, name):
        """Float64 values before the last rounding where the dump has them (engine `wide`), else the values."""
        if self.has(step, layer, name + ".unrounded"):
            return self.bits(step, layer, name + ".unrounded")
        return self.values(step, layer, name).astype(np.float64)

    def iterate(self, name, layer=0):
        """(step, values) of every step that published the tensor."""
        for step in self.steps:
            if self.has(step, layer, name):
                yield step, self.values(step, layer, name)

    def state_digests(self, step, layer):
        """Digest of each cache's live rows after the step."""
        path = f"/state/{step:06}/layer_{layer:02}"
        caches = self.file[path] if path in self.file else {}
        return {name: _text(caches[name].attrs["digest"]) for name in caches if "digest" in caches[name].attrs}

    def tokens(self, step):
        """Batch rows that are no padding."""
        return np.flatnonzero(self.batch(step)["request"] >= 0)

    def meaning(self, step, layer, name, coordinate):
        """What a coordinate of a tensor stands for: request, position, entry, head ..."""
        info = self.info(step, layer, name)
        if len(coordinate) != len(info.shape) or any(not 0 <= c < n for c, n in zip(coordinate, info.shape)):
            raise IndexError(f"{info.path} has shape {info.shape}, not a place {tuple(coordinate)}")
        result = dict(zip(info.dims, (int(c) for c in coordinate)))
        batch = self.batch(step)
        first = info.dims[0]
        if first == "token":
            self._name_token(result, batch, coordinate[0])
        elif first == "row":
            rows = f"{info.stage}/token"
            if self.has(step, layer, rows):
                self._name_token(result, batch, self.bits(step, layer, rows)[coordinate[0]])
            if self.has(step, layer, f"{info.stage}/slot"):
                result["slot"] = int(self.bits(step, layer, f"{info.stage}/slot")[coordinate[0]])
        elif first == "entry" and self.has(step, layer, f"{info.stage}/request"):
            request = int(self.bits(step, layer, f"{info.stage}/request")[coordinate[0]])
            index = int(self.bits(step, layer, f"{info.stage}/index")[coordinate[0]])
            ratio = self.ratios[layer]
            result.update(request=self._request(request), index=index,
                          positions=(index * ratio, (index + 1) * ratio - 1))
        return result

    def _name_token(self, result, batch, row):
        result["request"] = self._request(int(batch["request"][row]))
        result["position"] = int(batch["position"][row])

    def _request(self, index):
        return self.requests[index] if index >= 0 else None

    def _step(self, step):
        path = f"/steps/{step:06}"
        if path not in self.file:
            raise KeyError(f"{self.path}: there is no step {step}")
        return path

    def _dataset(self, step, layer, name):
        path = f"{self._step(step)}/layer_{layer:02}/{name}"
        if path not in self.file:
            raise KeyError(f"{self.path}: there is no {path}")
        return self.file[path]

    @staticmethod
    def _info(dataset):
        parts = dataset.name.split("/")
        layer = int(parts[3][6:]) if parts[3].startswith("layer_") else None
        attributes = {key: _text(dataset.attrs.get(key, "")) for key in ("dtype", "dims", "role", "digest")}
        return TensorInfo(dataset.name, int(parts[2]), layer, parts[-2], parts[-1], attributes["dtype"],
                          tuple(attributes["dims"].split(",")), dataset.shape, attributes["role"],
                          attributes["digest"])


def relative_error(values, reference):
    """Frobenius norm of the difference over that of the reference; infinities that agree count as equal."""
    values = np.asarray(values, np.float64)
    reference = np.asarray(reference, np.float64)
    if values.shape != reference.shape:
        raise ValueError(f"shapes {values.shape} and {reference.shape} differ")
    finite = np.isfinite(values) & np.isfinite(reference)
    same = (values == reference) | (np.isnan(values) & np.isnan(reference))
    if not np.all(finite | same):
        return float("inf")
    norm = np.linalg.norm(reference[finite])
    difference = np.linalg.norm(values[finite] - reference[finite])
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return float(difference / norm)

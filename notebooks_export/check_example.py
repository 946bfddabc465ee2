"""Results for `dsv4-oracle check`, from an implementation in numpy: the FP8 quantiser of window rows.

    dsv4-oracle golden export --case 'canonical-*' --output vectors
    python3 check_example.py vectors results
    dsv4-oracle check vectors --with results

Replace quantise() by a call of your kernel, and add the tensors that it makes. A stage reads its inputs from the
vectors; what is left out is counted, not judged.
"""

import os
import sys

import h5py
import numpy as np

from dsv4_dump import E4M3  # float32 values of the 256 codes


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def quantise(rows, block=64, largest=np.float32(448), floor=np.float32(1e-4)):
    """float32 [n, 448] -> e4m3 codes [n, 448], ue8m0 scales [n, 7]; docs/numerics.md 4."""
    blocks = rows.reshape(len(rows), -1, block)
    amax = np.maximum(np.abs(blocks).max(axis=2), floor)
    mantissa, exponent = np.frexp((amax / largest).astype(np.float32))  # in [0.5, 1): rounded up to a power of two
    exponent = np.where(mantissa == 0.5, exponent - 1, exponent)
    scaled = np.ldexp(blocks, -exponent[:, :, None]).astype(np.float32)
    # The nearest code, ties to the even one: among the positive codes by magnitude, 0x7F (NaN) left out.
    values = E4M3[:0x7F].astype(np.float64)
    magnitude = np.abs(scaled).astype(np.float64)
    above = np.clip(np.searchsorted(values, magnitude), 1, len(values) - 1)
    low, high = magnitude - values[above - 1], values[above] - magnitude
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    code = code | np.where(np.signbit(scaled), 0x80, 0)
    return code.astype(np.uint8).reshape(rows.shape), (exponent + 127).astype(np.uint8)


def compute(step):
    """{tensor: array} of one step's group in the vectors."""
    stage = step["kv.window"]
    kv = stage["kv"][:]  # bf16 bits
    codes, scales = quantise(bf16_to_f32(kv[:, :448]))
    return {"kv.window/codes": codes, "kv.window/scales": scales, "kv.window/rope": kv[:, 448:]}


def main(vectors, results):
    os.makedirs(results, exist_ok=True)
    for name in sorted(os.listdir(vectors)):
        if not name.endswith(".h5"):
            continue
        with h5py.File(os.path.join(vectors, name)) as source, h5py.File(os.path.join(results, name), "w") as target:
            target.attrs["case"] = source.attrs["case"]
            for step, group in source["steps"].items():
                if "kv" not in group.get("kv.window", {}):
                    continue
                for tensor, array in compute(group).items():
                    target[f"steps/{step}/{tensor}"] = array


if __name__ == "__main__":
    main(*sys.argv[1:])

/// Measures a GPU's special-function unit and tensor cores against the model in src/arith/hopper
/// (docs/hopper.md), for plain C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dsv4::gpu::probe {

/// One comparison: an instruction on one set of inputs.
struct Line {
  std::string function;
  std::string inputs;  ///< what they are
  std::uint64_t count = 0;
  std::uint64_t mismatches = 0;
  std::string first;  ///< the first mismatch, empty without one
};

/// The rule that explains a matrix instruction best, among all step lengths, F and OF.
struct Fit {
  std::string instruction;
  int step = 0;  ///< K of one fused step; 0: composed of fp16 steps (docs/hopper.md 4.4)
  int fraction_bits = 0;
  int output_fraction_bits = 0;
  std::uint64_t outputs = 0;
  std::uint64_t mismatches = 0;
  int rivals = 0;  ///< other rules that explain as much
};

/// Inputs and outputs of a function: `arguments` words in, one out, again and again.
struct RecordedFunction {
  std::string function;
  int arguments = 0;
  std::vector<std::uint32_t> words;
};

/// A matrix product d = c + a b^T in `steps` instructions: a [m][k], b [n][k] codes, c and d [m][n] float
/// bits.
struct RecordedTile {
  std::string instruction;
  std::string data;
  int m = 0;
  int n = 0;
  int k = 0;
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;
  std::vector<std::uint32_t> c;
  std::vector<std::uint32_t> d;
};

struct Report {
  std::string gpu;
  int major = 0;
  int minor = 0;
  int driver_cuda = 0;  ///< newest CUDA version of the driver, 13000 is 13.0
  bool has_wgmma = false;
  std::vector<Line> lines;
  std::vector<Fit> fits;
  std::vector<RecordedFunction> functions;  ///< when asked for
  std::vector<RecordedTile> tiles;
  /// Everything that decides agrees with the model, and there is a WGMMA.
  bool conforms() const;
};

/// Everything, on one device. `record` keeps inputs and outputs of some thousand cases. Throws SubjectError
/// without a device.
Report run(int device, bool record);

}  // namespace dsv4::gpu::probe

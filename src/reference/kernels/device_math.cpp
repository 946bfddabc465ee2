#include "reference/kernels/device_math.hpp"

#include <cstddef>

namespace dsv4::kernels {
namespace {

template <class Add>
float butterfly(std::span<float> lanes, std::initializer_list<int> offsets, Add add) {
  for (const int offset : offsets) {
    const std::size_t mask = static_cast<std::size_t>(offset);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const std::size_t partner = i ^ mask;
      if (partner > i) lanes[i] = lanes[partner] = add(lanes[i], lanes[partner]);
    }
  }
  return lanes[0];
}

}  // namespace

float butterfly_sum(std::span<float> lanes, std::initializer_list<int> offsets) {
  return butterfly(lanes, offsets, [](float a, float b) { return a + b; });
}

float ftz_butterfly_sum(std::span<float> lanes, std::initializer_list<int> offsets) {
  return butterfly(lanes, offsets, ftz_add);
}

}  // namespace dsv4::kernels

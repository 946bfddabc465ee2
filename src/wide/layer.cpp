#include "wide/layer.hpp"

#include <algorithm>
#include <cstring>

#include "model/error.hpp"
#include "wide/formats.hpp"
#include "wide/product.hpp"

namespace dsv4::wide {
namespace {

bool token_first(TensorId id) {
  return info(id).dims.starts_with("token");
}

}  // namespace

std::vector<double> bf16_values(std::span<const std::uint16_t> codes) {
  std::vector<double> values(codes.size());
  std::transform(codes.begin(), codes.end(), values.begin(), bf16_value);
  return values;
}

std::vector<double> decoded(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const auto convert = [&](auto elements, auto&& to_value) {
    std::transform(elements.begin(), elements.end(), values.begin(), to_value);
  };
  const auto as_is = [](auto x) { return static_cast<double>(x); };
  switch (tensor.dtype()) {
    case DType::float4_e2m1fn:
      convert(tensor.as<std::uint8_t>(), e2m1_value);
      break;
    case DType::float8_e4m3fn:
      convert(tensor.as<std::uint8_t>(), e4m3_value);
      break;
    case DType::float8_e8m0fnu:
      convert(tensor.as<std::uint8_t>(), ue8m0_value);
      break;
    case DType::bfloat16:
      convert(tensor.as<std::uint16_t>(), bf16_value);
      break;
    case DType::float32:
      convert(tensor.as<float>(), as_is);
      break;
    case DType::float64:
      convert(tensor.as<double>(), as_is);
      break;
    case DType::int32:
      convert(tensor.as<std::int32_t>(), as_is);
      break;
    case DType::uint8:
      convert(tensor.as<std::uint8_t>(), as_is);
      break;
  }
  return values;
}

Layer::Layer(const RunConfig& run, int layer)
    : config(run),
      index(layer),
      kind(run.layers.at(static_cast<std::size_t>(layer))),
      caches(run, layer),
      rope(run.geometry, kind, run.profile.exact ? RopeTable::f32 : run.profile.get<RopeTable>()),
      published_(tensor_count()) {}

void Layer::begin_step(const StepPlan& plan) {
  for (Published& entry : published_) entry = {};
  writes_.clear();
  rows_.clear();
  positions_.clear();
  contents_.clear();
  first_rows_.clear();
  steps_.clear();
  tokens_ = std::ssize(plan.rows);
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    if (plan.rows[row].request < 0) continue;
    rows_.push_back(static_cast<int>(row));
    positions_.push_back(plan.rows[row].position);
    contents_.push_back(plan.rows[row].content);
  }
  for (std::size_t step = 0; step < plan.requests.size(); ++step) {
    first_rows_.push_back(steps_.size());
    steps_.insert(steps_.end(), static_cast<std::size_t>(plan.requests[step].row_count), step);
  }
  require(steps_.size() == rows_.size(), "a plan's requests do not cover its rows");
}

bool Layer::kept(TensorId id) const {
  // Later stages read the activations of the layer's input.
  return info(id).role != Role::intermediate || wanted_.test(static_cast<std::size_t>(id)) ||
         id == TensorId::hidden_codes || id == TensorId::hidden_scales;
}

void Layer::keep_inputs(InputStore& store) const {
  if (tensor(TensorId::hidden) == nullptr) return;
  const Values hidden = input(TensorId::hidden);
  for (Eigen::Index i = 0; i < hidden.rows(); ++i) {
    const double* const row = hidden.data() + i * hidden.cols();
    store.put(index, contents_[static_cast<std::size_t>(i)], std::vector<double>(row, row + hidden.cols()));
  }
}

Layer::Published& Layer::published(TensorId id) {
  return published_[static_cast<std::size_t>(id)];
}
const Tensor* Layer::tensor(TensorId id) const {
  const auto& tensor = published_[static_cast<std::size_t>(id)].tensor;
  return tensor ? &*tensor : nullptr;
}
const Tensor* Layer::unrounded(TensorId id) const {
  const auto& tensor = published_[static_cast<std::size_t>(id)].unrounded;
  return tensor ? &*tensor : nullptr;
}
const Tensor* Layer::bound(TensorId id) const {
  const auto& tensor = published_[static_cast<std::size_t>(id)].bound;
  return tensor ? &*tensor : nullptr;
}
void Layer::set_tensor(TensorId id, Tensor value) {
  published(id).tensor = std::move(value);
  published(id).given = true;
}

void Layer::store(TensorId id, Tensor value) {
  published(id).tensor = std::move(value);
  published(id).given = false;
}

void Layer::drop_given(Stage stage) {
  for (const TensorInfo& tensor : tensor_catalogue()) {
    if (tensor.stage == stage && published(tensor.id).given) published(tensor.id) = {};
  }
}

std::optional<Values> Layer::take_given(TensorId id) {
  Published& entry = published(id);
  if (!entry.given) return std::nullopt;
  entry.given = false;
  Values values = input(id);
  entry.tensor.reset();
  return values;
}

Values Layer::input(TensorId id) const {
  const Tensor* const source = tensor(id);
  if (source == nullptr) throw InternalError("wide engine: stage input " + path(id) + " was not published");
  const std::vector<double> all = decoded(*source);
  const std::int64_t width = source->row_elements();
  const auto matrix = Eigen::Map<const Values>(all.data(), source->dim(0), width);
  if (!token_first(id)) return matrix;
  require(source->dim(0) == tokens_, "a tensor has other rows than the batch");
  Values compact(std::ssize(rows_), width);
  for (Eigen::Index row = 0; row < compact.rows(); ++row)
    compact.row(row) = matrix.row(target_row(true, row));
  return compact;
}

std::span<const std::int32_t> Layer::integers(TensorId id) const {
  const Tensor* const source = tensor(id);
  if (source == nullptr) throw InternalError("wide engine: stage input " + path(id) + " was not published");
  return source->as<std::int32_t>();
}

Values Layer::activations() const {
  if (exact()) return input(TensorId::hidden);
  Values values = input(TensorId::hidden_codes);
  const Values scales = input(TensorId::hidden_scales);
  for (Eigen::Index i = 0; i < values.rows(); ++i) {
    for (Eigen::Index j = 0; j < values.cols(); ++j) values(i, j) *= scales(i, j / kActivationFormat.block);
  }
  return values;
}

BlockFormat Layer::activation_format() const {
  BlockFormat format = kActivationFormat;
  if (axis<ActivationFloor>() == ActivationFloor::f1e10) format.least = 0x1.b7cdfep-34;  // float32 of 1e-10
  return format;
}

Balls Layer::linear(Balls input, const Matrix& matrix) const {
  if (exact()) return product(input, matrix);
  if (axis<Linear>() == Linear::bf16) return product(input, matrix, 0, matrix.rows, true);
  return product(quantise(input, input.columns(), activation_format()).dequantised, matrix);
}

Balls Layer::linear_of_input(const Matrix& matrix) const {
  if (rounding<Linear>() == Linear::bf16) return linear(Balls(input(TensorId::hidden)), matrix);
  return product(Balls(activations()), matrix);
}

std::vector<std::int64_t> Layer::shape(bool by_token, std::int64_t rows,
                                       std::span<const std::int64_t> tail) const {
  std::vector<std::int64_t> shape{by_token ? tokens_ : rows};
  shape.insert(shape.end(), tail.begin(), tail.end());
  return shape;
}

Tensor Layer::spread(bool by_token, std::span<const std::int64_t> tail, const Values& values) const {
  Tensor tensor(DType::float64, shape(by_token, values.rows(), tail));
  const auto out = tensor.as<double>();
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    std::copy_n(values.data() + row * values.cols(), values.cols(),
                out.begin() + target_row(by_token, row) * values.cols());
  }
  return tensor;
}

Balls Layer::publish_bf16(TensorId id, std::vector<std::int64_t> tail, Balls values) {
  const bool by_token = token_first(id);
  values.reshape(values.value.size() / Tensor::count(tail), Tensor::count(tail));
  std::optional<Values> given = take_given(id);
  if (!kept(id)) {
    values.round_to_bf16(exact());
    return given ? Balls(std::move(*given)) : values;
  }
  Published& entry = published(id);
  if (exact()) {
    entry.tensor = spread(by_token, tail, values.value);
    return given ? Balls(std::move(*given)) : values;
  }
  entry.unrounded = spread(by_token, tail, values.value);
  entry.bound = spread(by_token, tail, values.radius);
  Tensor tensor(DType::bfloat16, shape(by_token, values.rows(), tail));
  const auto codes = tensor.as<std::uint16_t>();
#pragma omp parallel for schedule(static)
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    const std::int64_t first = target_row(by_token, row) * values.columns();
    for (Eigen::Index j = 0; j < values.columns(); ++j) {
      const Ball rounded = bf16_point(values.at(row, j));
      codes[static_cast<std::size_t>(first + j)] = bf16_code(values.value(row, j));
      values.set(row, j, rounded);
    }
  }
  entry.tensor = std::move(tensor);
  return given ? Balls(std::move(*given)) : values;
}

Balls Layer::publish_unrounded(TensorId id, std::vector<std::int64_t> tail, Balls values) {
  values.reshape(values.value.size() / Tensor::count(tail), Tensor::count(tail));
  std::optional<Values> given = take_given(id);
  if (kept(id)) {
    publish_copy(id, tail, values.value, DType::float32);
    if (!exact()) {
      published(id).unrounded = spread(token_first(id), tail, values.value);
      published(id).bound = spread(token_first(id), tail, values.radius);
    }
  }
  return given ? Balls(std::move(*given)) : values;
}

void Layer::publish_f32(TensorId id, std::vector<std::int64_t> tail, const Balls& values) {
  publish_copy(id, tail, values.value);
  if (exact()) return;
  published(id).unrounded = spread(token_first(id), tail, values.value);
  published(id).bound = spread(token_first(id), tail, values.radius);
}

void Layer::publish_copy(TensorId id, std::vector<std::int64_t> tail, const Values& values, DType dtype) {
  const bool by_token = token_first(id);
  if (exact()) return store(id, spread(by_token, tail, values));
  Tensor tensor(dtype, shape(by_token, values.rows(), tail));
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    const std::int64_t first = target_row(by_token, row) * values.cols();
    for (Eigen::Index j = 0; j < values.cols(); ++j) {
      const auto at = static_cast<std::size_t>(first + j);
      if (tensor.dtype() == DType::bfloat16) {
        tensor.as<std::uint16_t>()[at] = bf16_code(values(row, j));
      } else {
        tensor.as<float>()[at] = static_cast<float>(values(row, j));
      }
    }
  }
  store(id, std::move(tensor));
}

void Layer::publish_integers(TensorId id, std::vector<std::int64_t> shape,
                             std::span<const std::int32_t> values) {
  Tensor tensor(DType::int32, std::move(shape));
  require(tensor.elements() == std::ssize(values), "an integer tensor of another size");
  std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
  store(id, std::move(tensor));
}

void Layer::publish_codes(TensorId codes, TensorId scales, std::vector<std::int64_t> tail,
                          std::vector<std::int64_t> scale_tail, Quantised& quantised, bool fp4,
                          bool f32_scales) {
  const std::optional<Values> given_codes = take_given(codes);
  std::optional<Values> given_scales = take_given(scales);
  const Values own_scales = quantised.scale.value;
  if (given_scales) {
    given_scales->resize(quantised.scale.rows(), quantised.blocks);
    quantised.scale = Balls(*given_scales);
  }
  if (given_codes && given_scales) {
    Balls& values = quantised.dequantised;
    values.radius.setZero();
    const Eigen::Index block = (values.columns() + quantised.blocks - 1) / quantised.blocks;
    for (Eigen::Index i = 0; i < values.value.size(); ++i) {
      const Eigen::Index row = i / values.columns();
      const double scale = quantised.scale.value(row, i % values.columns() / block);
      values.value.data()[i] = given_codes->data()[i] * scale;
    }
  }
  if (exact() || !kept(codes)) return;
  const bool by_token = token_first(codes);
  const std::int64_t row_count = quantised.scaled.value.size() / Tensor::count(tail);
  const auto spread_balls = [&](TensorId id, std::span<const std::int64_t> dims, Balls balls) {
    balls.reshape(row_count, Tensor::count({dims.begin(), dims.end()}));
    published(id).unrounded = spread(by_token, dims, balls.value);
    published(id).bound = spread(by_token, dims, balls.radius);
  };
  spread_balls(codes, tail, quantised.scaled);
  spread_balls(scales, scale_tail, quantised.quotient);

  Tensor code_tensor(fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, shape(by_token, row_count, tail));
  Tensor scale_tensor(f32_scales ? DType::float32 : DType::float8_e8m0fnu,
                      shape(by_token, row_count, scale_tail));
  const std::int64_t code_width = Tensor::count(tail);
  const std::int64_t scale_width = Tensor::count(scale_tail);
  for (std::int64_t row = 0; row < row_count; ++row) {
    const std::int64_t target = target_row(by_token, row);
    std::copy_n(quantised.codes.begin() + row * code_width, code_width,
                code_tensor.as<std::uint8_t>().begin() + target * code_width);
    for (std::int64_t i = 0; i < scale_width; ++i) {
      const std::uint8_t scale = quantised.scales[static_cast<std::size_t>(row * scale_width + i)];
      const auto at = static_cast<std::size_t>(target * scale_width + i);
      if (f32_scales) {
        scale_tensor.as<float>()[at] = static_cast<float>(own_scales.data()[row * scale_width + i]);
      } else {
        scale_tensor.as<std::uint8_t>()[at] = scale;
      }
    }
  }
  store(codes, std::move(code_tensor));
  store(scales, std::move(scale_tensor));
}

void Layer::publish_bytes(TensorId id, const std::vector<std::vector<std::byte>>& rows) {
  if (exact()) return;
  const bool by_token = token_first(id);
  const std::int64_t width = id == TensorId::indexer_page_bytes
                                 ? static_cast<std::int64_t>(caches.memory(Cache::index_entries).row_bytes())
                                 : static_cast<std::int64_t>(caches.memory(Cache::window).row_bytes());
  Tensor tensor(DType::uint8, shape(by_token, std::ssize(rows), std::vector{width}));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::copy(rows[row].begin(), rows[row].end(),
              tensor.bytes().begin() + target_row(by_token, static_cast<std::int64_t>(row)) * width);
  }
  store(id, std::move(tensor));
}

void Layer::write(Stage stage, Cache cache, std::int64_t slot, std::int32_t request, std::int32_t row_index,
                  std::vector<std::byte> bytes) {
  if (slot < 0) {
    throw InternalError(std::string(name(stage)) + ": no page for row " + std::to_string(row_index) +
                        " of request " + std::to_string(request));
  }
  caches.put(cache, slot, bytes);
  writes_.push_back({stage, cache, slot, request, row_index, std::move(bytes)});
}

void Layer::commit_online(const RequestStep& step, std::int32_t accepted) {
  const Residence home{*step.tables, step.state_base};
  caches.put(Cache::state, caches.online_slot(home, 0),
             caches.memory(Cache::state).row(caches.online_slot(home, accepted)));
}

}  // namespace dsv4::wide

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/engine.hpp"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

std::string two_digits(int value) { return (value < 10 ? "0" : "") + std::to_string(value); }

template <class T>
T* upload(DeviceMemory& memory, const std::string& name, const std::vector<T>& values) {
  T* device = memory.get<T>(name, values.size());
  DSV4_CUDA(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

/// A weight matrix as an operand: its stored form passes through buffers that all weights share.
WideOperand upload(DeviceMemory& memory, const std::string& name, const Matrix& matrix, Widen form, cudaStream_t stream) {
  const bool codes = matrix.format == Matrix::Format::fp8_block128;
  if (codes != (form != Widen::bf16)) throw InternalError("cuda engine: weight " + name + " has the wrong form");
  WideOperand device{memory.get<float>(name, wide_floats(matrix.rows, matrix.columns)), matrix.rows, matrix.columns,
                     wide_stride(matrix.rows), nullptr};
  if (!codes) {
    widen_weights(device, form, upload(memory, "weights/stored_bf16", matrix.bf16), nullptr, stream);
  } else {
    const std::uint8_t* scales = upload(memory, name + ".scales", matrix.scales);
    widen_weights(device, form, upload(memory, "weights/stored_codes", matrix.codes), scales, stream);
    if (form == Widen::codes) device.scales = scales;
  }
  DSV4_CUDA(cudaStreamSynchronize(stream));  // before the next weight takes the buffers
  return device;
}

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                                         std::shared_ptr<const HiddenSource> hidden, const CudaOptions& options) {
  return std::make_unique<CudaEngine>(config, std::move(weights), std::move(hidden), options);
}

std::vector<std::string> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    DSV4_CUDA(cudaGetDeviceProperties(&properties, i));
    names.emplace_back(properties.name);
  }
  return names;
}

CudaEngine::CudaEngine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                       std::shared_ptr<const HiddenSource> hidden, const CudaOptions& options)
    : Engine(config), options_(options), weight_source_(std::move(weights)), hidden_(std::move(hidden)) {
  check_profile();
  const std::vector<std::string> devices = cuda_devices();
  if (devices.empty()) throw SubjectError("no CUDA device: the engine 'cuda' needs an NVIDIA GPU and its driver");
  if (options.device < 0 || options.device >= static_cast<int>(devices.size())) {
    std::string known;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      known += (i == 0 ? "" : ", ") + std::to_string(i) + " (" + devices[i] + ")";
    }
    throw SubjectError("no CUDA device " + std::to_string(options.device) + "; there are: " + known);
  }
  device_name_ = devices[static_cast<std::size_t>(options.device)];
  DSV4_CUDA(cudaSetDevice(options.device));
  DSV4_CUDA(cudaStreamCreate(&stream_));
  DSV4_CUDA(cudaStreamCreate(&copy_stream_));
  report_ = memory_.get<std::uint64_t>("guard/report", 1);
  const std::size_t layers = config_.layers.size();
  weights_.resize(layers);
  caches_.resize(layers);
  tensors_.resize(layers);
  noted_.resize(layers);
  writes_.resize(layers);
  kept_inputs_.resize(layers);
  make_caches();
  make_table();
}

CudaEngine::~CudaEngine() {
  for (cudaStream_t stream : {stream_, copy_stream_}) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

EngineInfo CudaEngine::info() const { return {"cuda", true, true, true, device_name_}; }

void CudaEngine::want(const TensorSet& wanted) {
  Engine::want(wanted);
  prefetch_ = true;
}

void CudaEngine::check_profile() const {
  const Profile& p = config_.profile;
  if (p.exact) throw UsageError("profile exact needs the wide engine");
  const auto one_of = [&](Axis axis, std::initializer_list<std::string_view> known) {
    if (std::ranges::find(known, p.value(axis)) != known.end()) return;
    const auto& info = axes()[static_cast<std::size_t>(axis)];
    throw UsageError("axis " + std::string(info.name) + ": " + std::string(p.value(axis)) +
                     " is not computed by the engine 'cuda'");
  };
  one_of(Axis::linear, {"fp8_1x128"});
  one_of(Axis::wo_a, {"bf16"});
  one_of(Axis::head_norm, {"f32", "bf16"});
  one_of(Axis::rope_table, {"f32"});
  one_of(Axis::rope_input, {"bf16"});
  one_of(Axis::kv_cache, {"e4m3_amax_floor"});
  one_of(Axis::pool, {"f32"});
  one_of(Axis::pooled_rounding, {"bf16"});
  one_of(Axis::norm_weight, {"then_round"});
  one_of(Axis::index_cache, {"fp8", "fp4"});
  one_of(Axis::softmax, {"two_pass", "online64_bf16_p"});
  one_of(Axis::sink_in_max, {"no"});
  one_of(Axis::list_order, {"window_first"});
  one_of(Axis::out_rotation, {"bf16"});
  one_of(Axis::arithmetic, {"ieee"});
  one_of(Axis::q_rope_input, {"bf16"});
  one_of(Axis::kv_row, {"bf16"});
  one_of(Axis::compress_project, {"f32"});
  one_of(Axis::index_row, {"bf16"});
  one_of(Axis::index_scale, {"ue8m0"});
  one_of(Axis::fp4_rule, {"nearest_even"});
  one_of(Axis::activation_floor, {"1e-4"});
}

void CudaEngine::make_caches() {
  const bool fp4 = profile().get<IndexCache>() == IndexCache::fp4;
  for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
    const LayerKind layer_kind = config_.layers[layer];
    for (const Cache which : {Cache::window, Cache::entries, Cache::index_entries, Cache::state, Cache::index_state}) {
      if (!has_cache(layer_kind, which)) continue;
      CacheMemory& memory = caches_[layer][static_cast<std::size_t>(which)];
      if (which == Cache::state || which == Cache::index_state) {
        const int d = which == Cache::state ? kHeadDim : kIndexDim;
        const int parts = is_online(config_, layer_kind) ? 3 : 2;
        memory.page_rows = state_unit_rows(config_, layer_kind);
        memory.rows = state_rows(config_, layer_kind, which == Cache::index_state) / memory.page_rows;
        memory.value_bytes = parts * compressor_channels(layer_kind, d) * static_cast<int>(sizeof(float));
        memory.pitch = std::int64_t{memory.page_rows} * memory.value_bytes;
      } else {
        const Pool pool = pool_of(layer_kind, which);
        const bool index = which == Cache::index_entries;
        memory.rows = config_.pool_pages[static_cast<std::size_t>(pool)];
        memory.page_rows = page_rows(config_, pool);
        memory.value_bytes = !index ? layout::kKvValueBytes : fp4 ? layout::kIndexFp4ValueBytes : layout::kIndexFp8ValueBytes;
        memory.scale_bytes = !index ? layout::kKvScaleBytes : fp4 ? layout::kIndexFp4ScaleBytes : layout::kIndexFp8ScaleBytes;
        memory.pitch = config_.cache.pitch.value_or(index ? layout::index_page_bytes(memory.page_rows, fp4)
                                                          : layout::kv_page_bytes(memory.page_rows));
      }
      memory.data = memory_.get<std::byte>(
          "cache/" + two_digits(static_cast<int>(layer)) + "/" + std::string(name(which)),
          static_cast<std::size_t>(memory.rows * memory.pitch));
    }
  }
}

StageFunction CudaEngine::guarded(void (*stage)(const StageCall&)) {
  return [this, stage](const StageCall& call) {
    published_now_.clear();
    if (replaying_ != nullptr) {
      publish_recorded(call);
      start_copies(call.layer);
      return;
    }
    read_ahead_.bytes.clear();
    stage_ = call.stage;
    stage(call);
    blank_padding(call.layer);
    if (capturing_) {
      record_stage(call);
    } else if (building_ == nullptr) {
      start_copies(call.layer);
    }
  };
}

void CudaEngine::set_stage(Stage stage, void (*function)(const StageCall&)) {
  stages_[static_cast<std::size_t>(stage)] = guarded(function);
}

void CudaEngine::make_table() {
  set_stage(Stage::layer_input, layer_input);
  set_stage(Stage::q_down, q_down);
  set_stage(Stage::q_up, q_up);
  set_stage(Stage::kv_window, kv_window);
  for (const Stage stage : {Stage::compress_project, Stage::indexer_project}) set_stage(stage, compress_project);
  for (const Stage stage : {Stage::compress_state, Stage::indexer_state}) set_stage(stage, compress_state);
  for (const Stage stage : {Stage::compress_pool, Stage::indexer_pool}) set_stage(stage, compress_pool);
  for (const Stage stage : {Stage::compress_finish, Stage::indexer_finish}) set_stage(stage, compress_finish);
  set_stage(Stage::indexer_query, indexer_query);
  set_stage(Stage::indexer_score, indexer_score);
  set_stage(Stage::indexer_select, indexer_select);
  set_stage(Stage::attention_lists, attention_lists);
  set_stage(Stage::attention_core, attention_core);
  set_stage(Stage::output_project, output_project);
}

const DeviceWeights& CudaEngine::weights(int layer) {
  std::optional<DeviceWeights>& slot = weights_.at(static_cast<std::size_t>(layer));
  if (slot) return *slot;
  const std::shared_ptr<const LayerWeights> host = weight_source_->layer(layer);
  const std::string prefix = "weights/" + two_digits(layer) + "/";
  DeviceWeights device;
  const auto matrix = [&](const std::string& part, const Matrix& from, Widen form) {
    return upload(memory_, prefix + part, from, form, stream_);
  };
  device.wq_a = matrix("wq_a", host->wq_a, Widen::codes);
  device.wq_b = matrix("wq_b", host->wq_b, Widen::codes);
  device.wkv = matrix("wkv", host->wkv, Widen::codes);
  device.wo_b = matrix("wo_b", host->wo_b, Widen::codes);
  device.wo_a = matrix("wo_a", host->wo_a,
                       host->wo_a.format == Matrix::Format::bf16 ? Widen::bf16 : Widen::scaled_to_bf16);
  device.q_norm = upload(memory_, prefix + "q_norm", host->q_norm);
  device.kv_norm = upload(memory_, prefix + "kv_norm", host->kv_norm);
  device.sink = upload(memory_, prefix + "attn_sink", host->attn_sink);
  const auto compressor = [&](const std::string& part, const CompressorWeights& from) {
    DeviceCompressor to;
    to.wkv = matrix(part + "wkv", from.wkv, Widen::bf16);
    to.wgate = matrix(part + "wgate", from.wgate, Widen::bf16);
    to.ape = upload(memory_, prefix + part + "ape", from.ape);
    to.norm = upload(memory_, prefix + part + "norm", from.norm);
    return to;
  };
  if (has_compressor(kind(layer))) device.compressor = compressor("compressor.", host->compressor);
  if (has_indexer(kind(layer))) {
    device.indexer_wq_b = matrix("indexer.wq_b", host->indexer_wq_b, Widen::codes);
    device.weights_proj = matrix("indexer.weights_proj", host->indexer_weights_proj, Widen::bf16);
    device.indexer_compressor = compressor("indexer.compressor.", host->indexer_compressor);
  }
  slot = device;
  return *slot;
}

void CudaEngine::begin_step(const StepPlan& plan) {
  DSV4_CUDA(cudaSetDevice(options_.device));
  if (stepping_) {  // the last step was given up: its copies may be under way
    DSV4_CUDA(cudaStreamSynchronize(stream_));
    DSV4_CUDA(cudaStreamSynchronize(copy_stream_));
  }
  plan_ = &plan;
  stepping_ = true;
  replaying_ = nullptr;
  for (auto& map : tensors_) map.clear();
  for (auto& list : noted_) list.clear();
  for (auto& list : writes_) list.clear();
  sent_.reset();
  received_.reset();
  events_used_ = 0;
  read_ahead_.bytes.clear();
  DSV4_CUDA(cudaMemsetAsync(report_, 0xFF, sizeof *report_, stream_));
  for (const PageCopy& copy : plan.copies) {
    for_each_cache_of(copy.pool, [&](CacheMemory& memory) {
      std::byte* to = memory.data + copy.to * memory.pitch;
      const std::byte* from = memory.data + copy.from * memory.pitch;
      const std::int64_t scales = std::int64_t{memory.page_rows} * memory.value_bytes;
      DSV4_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(copy.rows) * memory.value_bytes,
                                cudaMemcpyDeviceToDevice, stream_));
      if (memory.scale_bytes == 0) return;
      DSV4_CUDA(cudaMemcpyAsync(to + scales, from + scales, static_cast<std::size_t>(copy.rows) * memory.scale_bytes,
                                cudaMemcpyDeviceToDevice, stream_));
    });
  }
  if (runs_as_graph(plan)) return run_graph(plan);
  layout_ = std::make_unique<StepLayout>(config_, plan);
  place_layout("step/layout");
}

void CudaEngine::place_layout(const std::string& buffer) {
  const std::vector<std::int32_t> packed = layout_->packed();
  const std::size_t bytes = packed.size() * sizeof(std::int32_t);
  auto* device = memory_.get<std::int32_t>(buffer, packed.size());
  std::byte* const sent = sent_.take(bytes);
  std::memcpy(sent, packed.data(), bytes);
  DSV4_CUDA(cudaMemcpyAsync(device, sent, bytes, cudaMemcpyHostToDevice, stream_));
  layout_->place(device);
}

void CudaEngine::end_step(const StepPlan& plan) {
  read_ahead_.bytes.clear();
  keep_inputs(plan);
  stepping_ = false;
  for (const RequestStep& request : plan.requests) {  // online C128: the accepted bank becomes the committed one
    const std::int32_t accepted = request.committed - request.begin;
    if (!request.verify || accepted <= 0) continue;
    for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
      if (!is_online(config_, config_.layers[layer])) continue;
      CacheMemory& memory = caches_[layer][static_cast<std::size_t>(Cache::state)];
      std::byte* base = memory.data + std::int64_t{request.state_base} * online_banks(config_.cache) * memory.pitch;
      DSV4_CUDA(cudaMemcpyAsync(base, base + accepted * memory.pitch, static_cast<std::size_t>(memory.pitch),
                                cudaMemcpyDeviceToDevice, stream_));
    }
  }
  if (config_.cache.poison_freed) {
    for (const PageRef& page : plan.released) fill_page(page.pool, page.page, layout::kPoison);
    for (const std::int32_t base : plan.released_bases) fill_state_base(base, layout::kPoison);
  }
  if (plan.poison) {
    for (const PageRef& page : plan.poison->pages) fill_page(page.pool, page.page, plan.poison->value);
    for (const std::int32_t base : plan.poison->state_bases) fill_state_base(base, plan.poison->value);
  }
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  DSV4_CUDA(cudaStreamSynchronize(copy_stream_));
  memory_.verify_canaries(stream_);
  check_report(plan);
}

CheckedIndices CudaEngine::checked(int layer, TensorId id, std::int64_t limit) {
  index_limits_[{layer, id}] = limit;
  return {input(layer, id).as<std::int32_t>(), limit, report_of({layer, stage_, id}, 0),
          reinterpret_cast<unsigned long long*>(report_)};
}

void CudaEngine::check_report(const StepPlan& plan) {
  std::uint64_t report = kNothingReported;
  DSV4_CUDA(cudaMemcpy(&report, report_, sizeof report, cudaMemcpyDeviceToHost));
  if (report == kNothingReported) return;
  const IndexSite site = site_of(report);
  const std::uint64_t element = element_of(report);
  const DeviceTensor& indices = input(site.layer, site.tensor);
  std::int32_t value = 0;
  DSV4_CUDA(cudaMemcpy(&value, indices.as<std::int32_t>() + element, sizeof value, cudaMemcpyDeviceToHost));
  const auto row = static_cast<std::uint64_t>(indices.shape.size() > 1 ? indices.shape[1] : 1);
  throw SubjectError("step " + std::to_string(plan.index) + " (" + plan.source + "), layer " + std::to_string(site.layer) +
                     ", " + std::string(name(site.stage)) + ": " + path(site.tensor) + " row " +
                     std::to_string(element / row) + ", item " + std::to_string(element % row) + " is " +
                     std::to_string(value) + ", outside -1.." +
                     std::to_string(index_limits_[{site.layer, site.tensor}] - 1));
}

void CudaEngine::for_each_cache_of(Pool pool, const std::function<void(CacheMemory&)>& visit) {
  for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
    for (const Cache which : {Cache::window, Cache::entries, Cache::index_entries, Cache::state, Cache::index_state}) {
      if (has_cache(config_.layers[layer], which) && pool_of(config_.layers[layer], which) == pool) {
        visit(caches_[layer][static_cast<std::size_t>(which)]);
      }
    }
  }
}

void CudaEngine::fill_page(Pool pool, std::int32_t page, std::uint8_t value) {
  for_each_cache_of(pool, [&](CacheMemory& memory) {
    DSV4_CUDA(cudaMemsetAsync(memory.data + page * memory.pitch, value, static_cast<std::size_t>(memory.pitch), stream_));
  });
}

void CudaEngine::fill_state_base(std::int32_t base, std::uint8_t value) {
  for (std::size_t layer = 0; layer < caches_.size(); ++layer) {
    for (const Cache which : {Cache::state, Cache::index_state}) {
      const LayerKind layer_kind = config_.layers[layer];
      if (!has_cache(layer_kind, which)) continue;
      if (state_unit_rows(config_, layer_kind) != 1) continue;  // paged: the pool's pages are released instead
      CacheMemory& memory = caches_[layer][static_cast<std::size_t>(which)];
      const std::int64_t bytes = memory.pitch * (memory.rows / config_.state_bases);
      DSV4_CUDA(cudaMemsetAsync(memory.data + base * bytes, value, static_cast<std::size_t>(bytes), stream_));
    }
  }
}

RopeRows CudaEngine::token_rope(int layer) {
  const bool yarn = has_compressor(kind(layer));
  const std::string prefix = yarn ? "step/rope_compress" : "step/rope_window";
  const auto count = static_cast<std::size_t>(layout_->tokens) * (kRopeDim / 2);
  RopeRows rows{memory_.get<float>(prefix + "/cos", count), memory_.get<float>(prefix + "/sin", count)};
  rope_table(layout_->rows.position.device, layout_->tokens, rope_frequencies(geometry(), kind(layer)), rows.cosines,
             rows.sines, stream_);
  return rows;
}

const CacheMemory& CudaEngine::cache(int layer, Cache which) const {
  return caches_.at(static_cast<std::size_t>(layer))[static_cast<std::size_t>(which)];
}
CacheMemory& CudaEngine::cache_of(int layer, Cache which) {
  return caches_.at(static_cast<std::size_t>(layer))[static_cast<std::size_t>(which)];
}

/// What a restore step of a chained run needs later: the inputs of upper layers.
void CudaEngine::keep_inputs(const StepPlan& plan) {
  if (!config_.chain || (plan.kind != StepKind::compute && plan.kind != StepKind::graph)) return;
  const auto dim = static_cast<std::size_t>(config_.geometry.dim);
  for (int layer = 1; layer < static_cast<int>(config_.layers.size()); ++layer) {
    const auto& map = tensors_[static_cast<std::size_t>(layer)];
    const auto found = map.find(static_cast<int>(TensorId::hidden));
    if (found == map.end()) continue;
    const auto hidden = host_tensor(layer, TensorId::hidden, found->second).as<std::uint16_t>();
    for (std::size_t t = 0; t < plan.rows.size(); ++t) {
      if (plan.rows[t].request < 0) continue;
      const auto row = hidden.begin() + static_cast<std::ptrdiff_t>(t * dim);
      keep_input(layer, plan.rows[t].content, {row, row + static_cast<std::ptrdiff_t>(dim)});
    }
  }
}

const std::vector<std::uint16_t>* CudaEngine::kept_input(int layer, std::uint64_t content) const {
  const auto& kept = kept_inputs_.at(static_cast<std::size_t>(layer));
  const auto found = kept.find(content);
  return found == kept.end() ? nullptr : &found->second;
}

void CudaEngine::keep_input(int layer, std::uint64_t content, std::vector<std::uint16_t> row) {
  kept_inputs_.at(static_cast<std::size_t>(layer))[content] = std::move(row);
}

std::vector<StoredInput> CudaEngine::stored_inputs(int layer) const {
  std::vector<StoredInput> inputs;
  for (const auto& [content, row] : kept_inputs_.at(static_cast<std::size_t>(layer))) inputs.push_back({content, row});
  return inputs;
}

void CudaEngine::store_inputs(int layer, std::span<const StoredInput> inputs) {
  for (const StoredInput& input : inputs) keep_input(layer, input.content, input.row);
}

}  // namespace dsv4::gpu

/// The CUDA engine: device caches, published tensors, weights, and the stage table.
///
/// One file a stage holds the stage's function and its kernels. Caches, state and block tables live on the device
/// between steps; a tensor comes back to the host only when somebody asks for it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpu/device_memory.cuh"
#include "gpu/linear.cuh"
#include "gpu/row_math.cuh"
#include "gpu/step_layout.cuh"
#include "model/engine.hpp"

namespace dsv4::gpu {

/// A tensor in device memory.
struct DeviceTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::byte* data = nullptr;

  std::int64_t elements() const { return Tensor::count(shape); }
  std::size_t size_in_bytes() const { return static_cast<std::size_t>(elements()) * size_bytes(dtype); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// Byte layout of one cache's pages, or of its state rows, and where they are.
struct CacheMemory {
  std::byte* data = nullptr;
  std::int64_t rows = 0;         ///< pages; rows of a ring or of online state
  std::int64_t pitch = 0;        ///< bytes from one page (row) to the next
  int page_rows = 1;             ///< entries (state rows) a page; state rows lie without gaps
  int value_bytes = 0;           ///< of one entry; its scales lie behind all values of the page
  int scale_bytes = 0;
};

struct DeviceCompressor {
  DeviceMatrix wkv, wgate;
  float* ape = nullptr;
  std::uint16_t* norm = nullptr;
};

struct DeviceWeights {
  DeviceMatrix wq_a, wq_b, wkv, wo_a, wo_b, indexer_wq_b, weights_proj;
  std::uint16_t* q_norm = nullptr;
  std::uint16_t* kv_norm = nullptr;
  float* sink = nullptr;
  DeviceCompressor compressor, indexer_compressor;
};

/// cos and sin for the rows of a step, [rows, 32] each.
struct RopeRows {
  float* cosines = nullptr;
  float* sines = nullptr;
};

/// One row of Engine::writes() before its bytes are fetched: `row` is its index in the noted array.
struct NotedRow {
  std::int32_t row, slot, request, index;
};

class CudaEngine : public Engine {
 public:
  CudaEngine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
             std::shared_ptr<const HiddenSource> hidden, int device);
  ~CudaEngine() override;

  EngineInfo info() const override;
  void begin_step(const StepPlan& plan) override;
  void end_step(const StepPlan& plan) override;
  const Tensor* tensor(int layer, TensorId id) const override;
  void set_tensor(int layer, TensorId id, Tensor value) override;
  std::span<const Write> writes(int layer) const override;
  void apply_writes(int layer, std::span<const Write> rows) override;
  std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const override;
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override;
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override;
  std::vector<StoredInput> stored_inputs(int layer) const override;
  void store_inputs(int layer, std::span<const StoredInput> inputs) override;

  // What stage functions use.
  cudaStream_t stream() const { return stream_; }
  DeviceMemory& memory() { return memory_; }
  const StepLayout& layout() const { return *layout_; }
  const Geometry& geometry() const { return config_.geometry; }
  const Profile& profile() const { return config_.profile; }
  LayerKind kind(int layer) const { return config_.layers.at(static_cast<std::size_t>(layer)); }
  const DeviceWeights& weights(int layer);
  const CacheMemory& cache(int layer, Cache which) const;
  /// A tensor published earlier in this step; InternalError naming it if it is not there.
  const DeviceTensor& input(int layer, TensorId id) const;
  /// A new tensor of this step. Rows of padding are blanked when the stage ends.
  DeviceTensor& publish(int layer, TensorId id, DType dtype, std::vector<std::int64_t> shape);
  /// An int32 tensor [n] that already has its values on the host.
  void publish_ints(int layer, TensorId id, const Ints& values);
  RopeRows token_rope(int layer);
  RopeRows entry_rope(int layer, const CompressorStep& step);
  /// Notes rows that a stage wrote: their bytes are rows of `bytes` [count, row_bytes] on the device, which is
  /// copied, so that later changes of it do not matter.
  void note_writes(int layer, Stage stage, Cache cache, std::vector<NotedRow> rows, const std::byte* bytes,
                   std::int64_t count, std::int64_t row_bytes);
  const HiddenSource& hidden() const { return *hidden_; }
  /// Layer inputs kept for recomputation in chained runs, by content id; null if unknown.
  const std::vector<std::uint16_t>* kept_input(int layer, std::uint64_t content) const;
  void keep_input(int layer, std::uint64_t content, std::vector<std::uint16_t> row);

 private:
  struct Published {
    DeviceTensor device;
    mutable Tensor host;
    mutable bool on_host = false;
  };
  struct NotedWrites {
    Stage stage;
    Cache cache;
    std::vector<NotedRow> rows;
    std::byte* bytes;  // device copy
    std::int64_t count, row_bytes;
  };

  void make_table();
  void make_caches();
  void check_profile() const;
  StageFunction guarded(StageFunction stage);
  void blank_padding(int layer);
  CacheMemory& cache_of(int layer, Cache which);
  void read_slot(const CacheMemory& memory, std::int64_t slot, std::byte* host) const;
  void write_slot(const CacheMemory& memory, std::int64_t slot, const std::byte* host);
  bool state_is_rows(int layer, Cache cache) const;
  void fill_page(Pool pool, std::int32_t page, std::uint8_t value);
  void fill_state_base(std::int32_t base, std::uint8_t value);
  void for_each_cache_of(Pool pool, const std::function<void(CacheMemory&)>& visit);

  int device_;
  std::string device_name_;
  cudaStream_t stream_ = nullptr;
  mutable DeviceMemory memory_;
  std::shared_ptr<const WeightSource> weight_source_;
  std::shared_ptr<const HiddenSource> hidden_;
  std::vector<std::optional<DeviceWeights>> weights_;
  std::vector<std::array<CacheMemory, kCacheCount>> caches_;
  std::unique_ptr<StepLayout> layout_;
  const StepPlan* plan_ = nullptr;
  std::vector<std::unordered_map<int, Published>> tensors_;
  std::vector<std::vector<NotedWrites>> noted_;
  mutable std::vector<std::vector<Write>> writes_;
  std::vector<std::map<std::uint64_t, std::vector<std::uint16_t>>> kept_inputs_;
  std::vector<TensorId> published_now_;  // by the stage that runs, for padding
};

/// The engine behind a call; the table of a CUDA engine holds only functions of this folder.
inline CudaEngine& engine_of(const StageCall& call) { return static_cast<CudaEngine&>(call.engine); }

// One function a stage, each in the file of its name.
void layer_input(const StageCall& call);
void q_down(const StageCall& call);
void q_up(const StageCall& call);
void kv_window(const StageCall& call);
void compress_project(const StageCall& call);  ///< also indexer.project, by call.stage
void compress_state(const StageCall& call);
void compress_pool(const StageCall& call);
void compress_finish(const StageCall& call);
void indexer_query(const StageCall& call);
void indexer_score(const StageCall& call);
void indexer_select(const StageCall& call);
void attention_lists(const StageCall& call);
void attention_core(const StageCall& call);
void output_project(const StageCall& call);

}  // namespace dsv4::gpu

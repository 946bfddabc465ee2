/// The CUDA engine: device caches, published tensors, weights, and the stage table.
///
/// One file a stage holds the stage's function and its kernels. Caches, state and block tables live on the device
/// between steps; a tensor comes back to the host only when somebody wants it, on a stream of its own.
///
/// Stage functions must allow capture into a graph (step_graph.cuh): no host copy, no wait, sizes from layout()
/// alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpu/device_memory.cuh"
#include "gpu/engine.hpp"
#include "gpu/guard.cuh"
#include "gpu/linear.cuh"
#include "gpu/row_math.cuh"
#include "gpu/step_graph.cuh"
#include "gpu/step_layout.cuh"
#include "model/engine.hpp"

namespace dsv4::gpu {

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
  WideOperand wkv, wgate;
  float* ape = nullptr;
  std::uint16_t* norm = nullptr;
};

struct DeviceWeights {
  WideOperand wq_a, wq_b, wkv, wo_a, wo_b, indexer_wq_b, weights_proj;
  std::uint16_t* q_norm = nullptr;
  std::uint16_t* kv_norm = nullptr;
  float* sink = nullptr;
  DeviceCompressor compressor, indexer_compressor;
};

/// cos and sin for the tokens of a step, [tokens, 32] each.
struct RopeRows {
  float* cosines = nullptr;
  float* sines = nullptr;
};

/// One row of Engine::writes() before its bytes are fetched: `row` is its index in the noted array.
struct NotedRow {
  std::int32_t row, slot, request, index;
};

/// Rows of a cache that were read with the one that was asked for: whoever reads a cache reads it in order.
struct ReadAhead {
  int layer = -1;
  Cache cache{};
  std::int64_t first = 0;
  std::int64_t next = 0;         ///< the row behind the last one that was asked for
  std::vector<std::byte> bytes;  ///< from row `first` on; empty: stale
};

class CudaEngine : public Engine {
 public:
  CudaEngine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
             std::shared_ptr<const HiddenSource> hidden, const CudaOptions& options);
  ~CudaEngine() override;

  EngineInfo info() const override;
  void want(const TensorSet& wanted) override;
  void begin_step(const StepPlan& plan) override;
  void end_step(const StepPlan& plan) override;
  const Tensor* tensor(int layer, TensorId id) const override;
  void set_tensor(int layer, TensorId id, Tensor value) override;
  std::span<const Write> writes(int layer) const override;
  void apply_writes(int layer, std::span<const Write> rows) override;
  std::vector<HeldTable> held_tables() const override;
  std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const override;
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override;
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override;
  std::vector<StoredInput> stored_inputs(int layer) const override;
  void store_inputs(int layer, std::span<const StoredInput> inputs) override;

  /// Puts another function of this kind into the table: one that works on the device's memory as those below do.
  void set_stage(Stage stage, void (*function)(const StageCall&));

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
  /// An int32 tensor [n] of the step's layout, where it lies: nothing is copied, so nothing may write it.
  void publish_ints(int layer, TensorId id, const Ints& values);
  RopeRows token_rope(int layer);
  /// Notes that a stage wrote rows into a cache: those of noted_rows(), each the row of every tensor in `parts`.
  void note_writes(int layer, Stage stage, Cache cache, const std::vector<TensorId>& parts);
  /// An int32 tensor of this step as indices below `limit`: what lies outside is left out, and the first such value
  /// that a kernel reads makes end_step throw a SubjectError with its coordinate.
  CheckedIndices checked(int layer, TensorId id, std::int64_t limit);
  /// The layer's rows of hidden states are put into its tensor before the graph of the step starts.
  bool hidden_given() const { return building_ != nullptr; }
  /// Rows of hidden states [rows, dim] of a layer that is not chained, or of a restore, into page-locked memory.
  std::byte* fetch_hidden(const StepPlan& plan, int layer);
  const HiddenSource& hidden() const { return *hidden_; }
  /// Layer inputs kept for recomputation in chained runs, by content id; null if unknown.
  const std::vector<std::uint16_t>* kept_input(int layer, std::uint64_t content) const;
  void keep_input(int layer, std::uint64_t content, std::vector<std::uint16_t> row);

 private:
  struct Published {
    DeviceTensor device;
    mutable Tensor host;
    mutable bool on_host = false;
    std::byte* pinned = nullptr;    // the host bytes once `copied` has happened, or null
    cudaEvent_t copied = nullptr;
  };

  void make_table();
  void make_caches();
  void check_profile() const;
  StageFunction guarded(void (*stage)(const StageCall&));
  DeviceTensor& publish_at(int layer, TensorId id, DeviceTensor tensor);
  void blank_padding(int layer);
  std::vector<NotedRow> noted_rows(int layer, Stage stage) const;
  void place_layout(const std::string& buffer);
  void keep_inputs(const StepPlan& plan);

  // Graphs.
  bool runs_as_graph(const StepPlan& plan) const;
  void run_graph(const StepPlan& plan);
  void capture(StepGraph& graph, std::int64_t rows, const Capacity& capacity);
  void walk_stages(const StepPlan& plan);
  void record_stage(const StageCall& call);
  void publish_recorded(const StageCall& call);
  bool in_graph() const { return building_ != nullptr || (stepping_ && replaying_ != nullptr); }
  [[noreturn]] void refuse_in_graph(const char* what) const;

  // Host copies.
  std::vector<std::int64_t> true_shape(int layer, TensorId id, const DeviceTensor& tensor) const;
  void copy_out(int layer, TensorId id, const DeviceTensor& tensor, std::byte* host, cudaStream_t stream) const;
  void start_copies(int layer);
  const Tensor& host_tensor(int layer, TensorId id, const Published& entry) const;
  cudaEvent_t next_event();
  void check_report(const StepPlan& plan);
  CacheMemory& cache_of(int layer, Cache which);
  /// Rows from `host`, one after another, to their slots, or back.
  template <bool kToSlots>
  void move_rows(const CacheMemory& memory, std::span<const std::int64_t> slots, std::byte* host) const;
  void fill_page(Pool pool, std::int32_t page, std::uint8_t value);
  void fill_state_base(std::int32_t base, std::uint8_t value);
  void for_each_cache_of(Pool pool, const std::function<void(CacheMemory&)>& visit);

  CudaOptions options_;
  std::string device_name_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::size_t events_used_ = 0;  // in this step
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
  mutable PinnedMemory sent_, received_;  // host sides of this step's copies
  bool prefetch_ = false;                 // somebody said what is wanted
  std::map<std::int64_t, StepGraph> graphs_;  // by row count
  StepGraph* building_ = nullptr;   // stages run for the graph: warm-up, then capture
  bool capturing_ = false;
  bool stepping_ = false;  // between begin_step and end_step
  const StepGraph* replaying_ = nullptr;  // this step's stages have run
  mutable ReadAhead read_ahead_;
  Stage stage_{};                    // that runs
  std::uint64_t* report_ = nullptr;  // device, see guard.cuh
  std::map<std::pair<int, TensorId>, std::int64_t> index_limits_;
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

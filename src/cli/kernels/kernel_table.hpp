/// Which profile's stage is computed by which model of a production kernel (docs/kernel-models.md): the one
/// table that installs models, lists them (`list kernels`), says which tensors have a kernel's bits, and that
/// others walk to try models one by one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/observation.hpp"

namespace dsv4::cli {

struct KernelCall;

/// A tensor that has the kernel's bits when what the kernel reads is identical: the stage's inputs and, where
/// a linear layer comes first that has no model, `given`, which the stage publishes behind it.
struct ExactTensor {
  TensorId id;
  std::optional<TensorId> given = std::nullopt;
};

struct StageModel {
  std::string_view profiles;  ///< prefix of the profiles' names: "vllm-", "sglang-"
  Stage stage;
  std::string_view models;     ///< as the chapters of docs/kernel-models.md name them
  std::string_view condition;  ///< when it applies, in words; empty: always
  std::string_view remark;     ///< what is inferred, or left to the profile; may be empty
  std::vector<ExactTensor> exact;
  std::vector<TensorId> beyond;  ///< tensors that leave the profile's sums and roundings, and with them the
                                 ///< bounds of the float64 engine
  std::vector<TensorId> reads;  ///< intermediate tensors that the model reads
  bool (*applies)(const RunConfig& config, LayerKind kind);
  void (*run)(const KernelCall& call);
  bool together = false;  ///< rows of one profile that hand state to each other are chosen together
};

/// In the order of profiles, then of stages.
std::span<const StageModel> stage_models();

/// Those of a run: of its profile, and in a layer of this kind; empty if the profile has none.
std::vector<const StageModel*> stage_models_of(const RunConfig& config, LayerKind kind);

/// The models that a run with kernel models uses, as checkpoints state them:
/// "q.up=vllm_qnorm_rope_kv_insert, compress.pool=vllm_compress_pool, ...".
std::string kernel_models_text(const RunConfig& config);

/// The table as text for a terminal, as JSON Lines, or as Markdown.
void print_kernel_table(bool json, bool markdown);

}  // namespace dsv4::cli

/// Compares the published tensors of one layer in one step, in an order in which causes come before effects.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compare/comparator.hpp"
#include "compare/comparison.hpp"
#include "compare/meaning.hpp"
#include "compare/rule.hpp"
#include "compare/selection.hpp"
#include "compare/tensor_scan.hpp"
#include "model/observation.hpp"

namespace dsv4::compare {

/// The tensors of a layer kind: stages in execution order, each tensor after those of its stage that it is
/// made from.
std::vector<TensorId> comparison_order(LayerKind kind);

/// What is known about a cache or tensor on both sides, in terms of what a reader of it inherits.
using CacheStatus = std::map<std::pair<int, Cache>, Inputs>;

class LayerComparer {
 public:
  struct Context {
    const SourceInfo& reference_info;
    const SourceInfo& subject_info;
    const StepObservation& reference;
    const StepObservation& subject;
    const Rules& rules;
    const CompareOptions& options;
    const CacheStatus& caches;  ///< before the step
  };
  /// `previous` is the comparer of the layer below, or null.
  LayerComparer(const Context& context, int layer, const LayerComparer* previous);

  /// Appends a Comparison or Skip for every tensor that either side has.
  void run(StepComparison& out);

  /// Status of a tensor after run(); `unknown` if it was not compared.
  Inputs status(TensorId id) const;
  bool compared(TensorId id) const { return status_.contains(id); }
  /// Worst status of the rows that this step wrote into a cache.
  Inputs rows_written_status(Cache cache) const;

 private:
  void compare(TensorId id, const Tensor& reference, const Tensor& subject, StepComparison& out);
  /// `made_from_too`: also the tensors of the same stage that this one is made from.
  Inputs inputs_of(TensorId id, bool made_from_too, std::vector<std::string>* named) const;
  bool applies(TensorId id) const;
  DontCare dont_care(TensorId id, const Tensor& tensor) const;
  std::vector<bool> judged_rows(TensorId id, const Tensor& tensor) const;
  std::vector<bool> padding_rows(const Tensor& tensor) const;
  void compare_values(TensorId id, const Tensor& reference, const Tensor& subject, bool only_equal,
                      Comparison& result);
  /// By the rules, or because a kernel model and the kernel itself had the same inputs.
  bool only_equal_passes(TensorId id, const Tensor& reference, const Tensor& subject, Inputs inputs) const;
  void compare_set(TensorId id, const Tensor& reference, const Tensor& subject, Comparison& result);
  void count_requests(TensorId id, const std::vector<std::int64_t>& rows, Comparison& result) const;
  const LayerObservation& side(bool reference) const;
  /// The scales of codes, or the codes of scales: where both sides have them in one shape, row for row beside
  /// the tensor; else null, and the tensor is judged alone.
  const Tensor* beside(bool reference, TensorId id, TensorId companion) const;
  const Tensor* find(bool reference, TensorId id) const;
  /// The subject does not hold it and took it from the reference.
  bool taken(TensorId id) const;

  Context context_;
  int layer_;
  LayerKind kind_;
  const LayerComparer* previous_;
  MeaningOf meaning_;
  std::map<TensorId, Inputs> status_;
  std::map<TensorId, bool> passed_;
  RowVerdicts selection_;  ///< rows whose selection differs
};

/// Worse of two: identical, within_rule, unknown, different.
Inputs worse(Inputs a, Inputs b);

}  // namespace dsv4::compare

#include "compare/layer_comparer.hpp"

#include <algorithm>
#include <set>

#include "compare/element.hpp"
#include "compare/judge.hpp"
#include "compare/order_bound.hpp"
#include "compare/packed_row.hpp"
#include "compare/stage_inputs.hpp"
#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

void visit(TensorId id, std::vector<TensorId>& order) {
  if (std::ranges::find(order, id) != order.end()) return;
  for (const TensorId source : made_from(id)) visit(source, order);
  order.push_back(id);
}

// The side that carries float64 values and bounds of a tensor.
const LayerObservation* wide_side(const LayerObservation& layer, TensorId id, const Tensor& tensor) {
  const auto exact = layer.unrounded.find(id);
  const auto bound = layer.bounds.find(id);
  if (exact == layer.unrounded.end() || bound == layer.bounds.end()) return nullptr;
  const bool fits = exact->second.elements() == tensor.elements() &&
                    bound->second.elements() == tensor.elements() &&
                    exact->second.dtype() == DType::float64 && bound->second.dtype() == DType::float64;
  return fits ? &layer : nullptr;
}

bool is_state_stage(Stage stage) {
  switch (stage) {
    case Stage::compress_pool:
    case Stage::compress_state:
    case Stage::compress_finish:
    case Stage::indexer_pool:
    case Stage::indexer_state:
    case Stage::indexer_finish:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<TensorId> comparison_order(LayerKind kind) {
  std::vector<TensorId> order;
  for (const Stage stage : execution_order(kind, false)) {
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (tensor.stage == stage) visit(tensor.id, order);
    }
  }
  return order;
}

Inputs worse(Inputs a, Inputs b) {
  const auto rank = [](Inputs inputs) {
    switch (inputs) {
      case Inputs::identical:
        return 0;
      case Inputs::within_rule:
        return 1;
      case Inputs::unknown:
        return 2;
      case Inputs::different:
        return 3;
    }
    return 3;
  };
  return rank(a) >= rank(b) ? a : b;
}

LayerComparer::LayerComparer(const Context& context, int layer, const LayerComparer* previous)
    : context_(context),
      layer_(layer),
      kind_(context.reference_info.config.layers[static_cast<std::size_t>(layer)]),
      previous_(previous),
      meaning_(context.reference_info, context.reference, layer) {}

const LayerObservation& LayerComparer::side(bool reference) const {
  return (reference ? context_.reference : context_.subject).layers[static_cast<std::size_t>(layer_)];
}

const Tensor* LayerComparer::find(bool reference, TensorId id) const {
  const auto& tensors = side(reference).tensors;
  const auto found = tensors.find(id);
  return found == tensors.end() ? nullptr : &found->second;
}

const Tensor* LayerComparer::beside(bool reference, TensorId id, TensorId companion) const {
  const Tensor* const mine = find(reference, companion);
  const Tensor* const other = find(!reference, companion);
  const Tensor* const tensor = find(reference, id);
  if (mine == nullptr || other == nullptr || tensor == nullptr || mine->shape() != other->shape())
    return nullptr;
  const auto rows = [](const Tensor& t) {
    return t.shape().empty() || t.shape().back() == 0 ? 0 : t.elements() / t.shape().back();
  };
  return rows(*mine) == rows(*tensor) ? mine : nullptr;
}

void LayerComparer::run(StepComparison& out) {
  for (const TensorId id : comparison_order(kind_)) {
    const Tensor* reference = find(true, id);
    const Tensor* subject = find(false, id);
    if (reference == nullptr && subject == nullptr) continue;
    Skip skip{Skip::Kind::skipped,
              context_.reference.step,
              layer_,
              std::string(name(info(id).stage)),
              std::string(info(id).name),
              ""};
    if (context_.options.wanted && !context_.options.wanted(layer_, id)) {
      skip.reason = context_.options.unwanted_reason;
      out.skips.push_back(std::move(skip));
      continue;
    }
    if (reference == nullptr || subject == nullptr) {
      const bool absent_reference = reference == nullptr;
      if (context_.options.due && context_.options.due(absent_reference, skip.step, id)) {
        out.findings.push_back(missing(absent_reference, skip.step, layer_, path(id)));
        continue;
      }
      skip.kind = Skip::Kind::not_produced;
      skip.reason = reference == nullptr ? "not produced by the reference" : "not produced by the subject";
      out.skips.push_back(std::move(skip));
      continue;
    }
    compare(id, *reference, *subject, out);
  }
}

void LayerComparer::compare(TensorId id, const Tensor& reference, const Tensor& subject,
                            StepComparison& out) {
  Comparison result;
  result.step = context_.reference.step;
  result.layer = layer_;
  result.stage = name(info(id).stage);
  result.tensor = info(id).name;
  result.id = id;
  result.inputs = inputs_of(id, true, nullptr);
  const bool only_equal = only_equal_passes(id, reference, subject, result.inputs);
  result.rule = to_string(only_equal ? Rule{} : context_.rules.rule(id));
  if (tensor_class(id) == TensorClass::selection) {
    compare_set(id, reference, subject, result);
    if (only_equal) result.outside = result.mismatches;
  } else {
    compare_values(id, reference, subject, only_equal, result);
  }
  result.failed = only_equal ? result.verdict != Verdict::equal : result.verdict == Verdict::diverged;
  result.downstream = result.failed && result.inputs == Inputs::different;
  if (result.verdict != Verdict::equal) {
    inputs_of(id, true, &result.inputs_compared);
    if (!result.first.empty()) {
      std::int64_t element = 0;
      for (std::size_t axis = 0; axis < result.first.size(); ++axis) {
        element = element * reference.dim(axis) + result.first[axis];
      }
      result.meaning = meaning_.element(id, reference, element);
    }
  }
  status_[id] = result.verdict == Verdict::equal ? Inputs::identical
                : result.failed                  ? Inputs::different
                                                 : Inputs::within_rule;
  out.comparisons.push_back(std::move(result));
}

bool LayerComparer::only_equal_passes(TensorId id, const Tensor& reference, const Tensor& subject,
                                      Inputs inputs) const {
  if (context_.rules.only_equal_passes(id)) return true;
  const std::optional<TensorId> given = context_.rules.given(id);
  return context_.rules.only_equal_on_same_inputs(id) && inputs == Inputs::identical &&
         (!given || taken(*given) || status(*given) == Inputs::identical) &&
         wide_side(side(true), id, reference) == nullptr && wide_side(side(false), id, subject) == nullptr;
}

std::vector<bool> LayerComparer::padding_rows(const Tensor& tensor) const {
  std::vector<bool> padding(tensor.shape().empty() ? 0 : static_cast<std::size_t>(tensor.dim(0)), false);
  const Tensor& request = context_.reference.batch.request;
  if (request.dtype() != DType::int32 || request.shape().empty() ||
      request.elements() != static_cast<std::int64_t>(padding.size())) {
    return padding;
  }
  for (std::size_t row = 0; row < padding.size(); ++row) padding[row] = request.as<std::int32_t>()[row] < 0;
  return padding;
}

std::vector<bool> LayerComparer::judged_rows(TensorId id, const Tensor& tensor) const {
  std::vector<bool> judged = padding_rows(tensor);
  judged.flip();
  for (std::size_t row = 0; context_.options.judged_row && row < judged.size(); ++row) {
    judged[row] = judged[row] && context_.options.judged_row(layer_, id, static_cast<std::int64_t>(row));
  }
  return judged;
}

DontCare LayerComparer::dont_care(TensorId id, const Tensor& tensor) const {
  DontCare result;
  if (tensor.shape().empty()) return result;
  const std::int64_t width = tensor.row_elements();
  const auto note = [&result](std::string_view reason) {
    if (result.reason.find(reason) != std::string::npos) return;
    result.reason += (result.reason.empty() ? "" : ", ") + std::string(reason);
  };
  const auto limit = [&](std::int64_t row, std::int64_t judged, std::string_view reason) {
    if (judged >= width) return;
    if (result.judged.empty()) result.judged.assign(static_cast<std::size_t>(tensor.dim(0)), width);
    std::int64_t& kept = result.judged[static_cast<std::size_t>(row)];
    kept = std::min(kept, std::max<std::int64_t>(judged, 0));
    note(reason);
  };
  if (info(id).dims.starts_with("token")) {
    const std::vector<bool> padding = padding_rows(tensor);
    for (std::size_t row = 0; row < padding.size(); ++row) {
      if (padding[row]) limit(static_cast<std::int64_t>(row), 0, "padding rows");
    }
  }
  for (std::int64_t row = 0; context_.options.judged_row && row < tensor.dim(0); ++row) {
    if (!context_.options.judged_row(layer_, id, row)) limit(row, 0, context_.options.unjudged_reason);
  }
  if (id == TensorId::scores) {
    const Tensor* visible = find(true, TensorId::visible);
    if (visible != nullptr && visible->elements() == tensor.dim(0)) {
      for (std::int64_t row = 0; row < tensor.dim(0); ++row) {
        limit(row, visible->as<std::int32_t>()[static_cast<std::size_t>(row)], "scores at or beyond visible");
      }
    }
  }
  const Stage stage = info(id).stage;
  if (context_.rules.set() != RuleSet::bits &&
      (stage == Stage::attention_core || stage == Stage::output_project)) {
    for (const auto& [row, verdict] : selection_) {
      if (verdict == Verdict::tie_swap || verdict == Verdict::within_rule) {
        limit(row, 0, "rows that attend to another legal selection");
      }
    }
  }
  if (tensor_class(id) == TensorClass::bytes && width == layout::kKvRowBytes) {
    result.also = [](std::int64_t byte) { return byte == layout::kKvRowBytes - 1; };
    result.also_in_row = 1;
    note("spare scale byte");
  }
  return result;
}

void LayerComparer::compare_values(TensorId id, const Tensor& reference, const Tensor& subject,
                                   bool only_equal, Comparison& result) {
  const TensorClass kind = tensor_class(id);
  const DontCare ignored = dont_care(id, reference);
  const Limits limits{only_equal ? Rule{} : context_.rules.rule(id),
                      ordering_limit_in_rms(summed_terms(id, context_.reference_info.config.geometry))};
  const LayerObservation* wide_reference = wide_side(side(true), id, reference);
  const LayerObservation* wide_subject = wide_side(side(false), id, subject);
  // A bound is a statement about the same stage inputs; on other inputs the tensor's rule decides.
  const bool bounded = (wide_reference != nullptr) != (wide_subject != nullptr) &&
                       is_float(reference.dtype()) && context_.rules.bounded(id);
  const bool by_bound = bounded && inputs_of(id, false, nullptr) == Inputs::identical;
  if (by_bound) result.rule = "bound";

  const auto quantised = [&](bool of_reference) {
    const std::optional<TensorId> scales = scales_of(id);
    return Quantised{find(of_reference, id), scales ? beside(of_reference, id, *scales) : nullptr};
  };
  const auto judge = [&]() -> std::unique_ptr<ElementJudge> {
    if (by_bound) {
      const bool wide_is_reference = wide_reference != nullptr;
      const LayerObservation& wide = wide_is_reference ? *wide_reference : *wide_subject;
      const Quantised narrow = quantised(!wide_is_reference);
      // An index scale may be any float32: then it is judged as a value (axis index_scale).
      const bool power_of_two_scale =
          kind == TensorClass::scales &&
          (reference.dtype() == DType::float8_e8m0fnu ||
           context_.reference_info.config.profile.get<IndexScale>() == IndexScale::ue8m0);
      return bound_judge(narrow, wide_is_reference ? reference : subject,
                         {&wide.unrounded.at(id), &wide.bounds.at(id), quantised(wide_is_reference).scales},
                         power_of_two_scale, wide_is_reference);
    }
    if (kind == TensorClass::codes) return codes_judge(quantised(true), quantised(false), limits);
    if (kind == TensorClass::scales) {
      const TensorId codes = *codes_of(id);
      return scales_judge({beside(true, id, codes), &reference}, {beside(false, id, codes), &subject},
                          limits);
    }
    if (kind == TensorClass::bytes) {
      if (const auto packed = PackedRow::of_row_bytes(reference.row_elements())) {
        return bytes_judge(reference, subject, *packed, limits);
      }
      const Profile& profile = context_.reference_info.config.profile;
      return half_rows_judge(reference, subject,
                             id == TensorId::indexer_page_bytes ? profile.get<IndexCache>() == IndexCache::f16
                                                                : profile.get<KvCache>() == KvCache::f16,
                             limits);
    }
    return plain_judge(reference, subject, limits);
  };
  const ScanRules rules{only_equal, by_bound ? Inputs::unknown : result.inputs, axis_names(info(id).dims)};
  const std::vector<std::int64_t> rows = scan_pair(reference, subject, ignored, rules, judge, result);
  if (by_bound && kind == TensorClass::codes) result.worst_code_steps = result.worst_ulp;
  count_requests(id, rows, result);

  const auto explain = [&](NonFinite& nonfinite) {
    if (nonfinite.count == 0) return;
    std::int64_t element = 0;
    for (std::size_t axis = 0; axis < nonfinite.first.size(); ++axis) {
      element = element * reference.dim(axis) + nonfinite.first[axis];
    }
    nonfinite.meaning = meaning_.element(id, reference, element);
  };
  if (reference.shape() != subject.shape()) return;
  result.reference_nonfinite = scan_nonfinite(reference, ignored);
  result.subject_nonfinite = result.verdict == Verdict::equal && reference.dtype() == subject.dtype()
                                 ? result.reference_nonfinite
                                 : scan_nonfinite(subject, ignored);
  explain(result.reference_nonfinite);
  explain(result.subject_nonfinite);
}

void LayerComparer::compare_set(TensorId id, const Tensor& reference, const Tensor& subject,
                                Comparison& result) {
  const std::vector<bool> judged = judged_rows(id, reference);
  RowVerdicts verdicts;
  if (id == TensorId::selected) {
    SelectionScores scores;
    scores.reference = find(true, TensorId::scores);
    scores.subject = find(false, TensorId::scores);
    scores.visible = find(true, TensorId::visible);
    const auto status = status_.find(TensorId::scores);
    scores.pass_rule = status != status_.end() && status->second != Inputs::different;
    const bool same_inputs = inputs_of(TensorId::scores, false, nullptr) == Inputs::identical;
    for (const bool of_reference : {true, false}) {
      if (!same_inputs) break;
      const Tensor* tensor = of_reference ? scores.reference : scores.subject;
      const LayerObservation* wide =
          tensor == nullptr ? nullptr : wide_side(side(of_reference), TensorId::scores, *tensor);
      if (wide == nullptr) continue;
      scores.unrounded = &wide->unrounded.at(TensorId::scores);
      scores.bounds = &wide->bounds.at(TensorId::scores);
    }
    verdicts = compare_selection(reference, subject, judged, scores, result);
    selection_ = verdicts;
  } else {
    verdicts = compare_lists(reference, subject, judged, selection_, result);
  }
  std::vector<std::int64_t> rows;
  for (const auto& [row, verdict] : verdicts) rows.push_back(row);
  count_requests(id, rows, result);
}

void LayerComparer::count_requests(TensorId id, const std::vector<std::int64_t>& rows,
                                   Comparison& result) const {
  if (rows.empty()) return;
  const std::vector<RowOwner> owners = meaning_.rows(id);
  std::set<std::int32_t> all;
  std::set<std::int32_t> touched;
  for (const RowOwner& owner : owners) {
    if (owner.request >= 0) all.insert(owner.request);
  }
  for (const std::int64_t row : rows) {
    const std::int32_t request = owners[static_cast<std::size_t>(row)].request;
    if (request >= 0) touched.insert(request);
  }
  result.requests_total = static_cast<std::int64_t>(all.size());
  result.requests_touched = static_cast<std::int64_t>(touched.size());
}

// A tensor that neither side has may be one that this run does not make (a window-only layer's entries, a
// step that finishes no entry), or one that was left out of a dump.
bool LayerComparer::applies(TensorId id) const {
  const TensorInfo& tensor = info(id);
  const auto order = execution_order(kind_, false);
  if (std::ranges::find(order, tensor.stage) == order.end()) return false;
  if (tensor.role == Role::intermediate || is_state_stage(tensor.stage)) return false;
  for (const bool reference : {true, false}) {
    for (const auto& [other, value] : side(reference).tensors) {
      if (info(other).stage == tensor.stage) return false;
    }
  }
  return true;
}

Inputs LayerComparer::inputs_of(TensorId id, bool made_from_too, std::vector<std::string>* named) const {
  Inputs result = Inputs::identical;
  const auto add = [&](Inputs status, const std::string& what) {
    if (named != nullptr) {
      named->push_back(what + (status == Inputs::different     ? "*"
                               : status == Inputs::within_rule ? "~"
                               : status == Inputs::unknown     ? "?"
                                                               : ""));
    }
    result = worse(result, status);
  };
  const auto add_tensor = [&](const LayerComparer& where, TensorId source, const std::string& prefix) {
    const auto found = where.status_.find(source);
    if (found != where.status_.end()) return add(found->second, prefix + path(source));
    if (where.taken(source)) return add(Inputs::identical, prefix + path(source));
    const bool present = where.find(true, source) != nullptr || where.find(false, source) != nullptr;
    if (present || where.applies(source)) add(Inputs::unknown, prefix + path(source));
  };
  const Stage stage = info(id).stage;
  for (const TensorId source : made_from(id)) {
    if (made_from_too && status_.contains(source)) add_tensor(*this, source, "");
  }
  if (context_.options.fed) return result;
  const StageInputs& inputs = stage_inputs(stage);
  for (const TensorId source : inputs.tensors) add_tensor(*this, source, "");
  for (const Cache cache : inputs.caches) {
    if (!has_cache(kind_, cache)) continue;
    const auto found = context_.caches.find({layer_, cache});
    add(found == context_.caches.end() ? Inputs::identical : found->second,
        "cache " + std::string(name(cache)));
  }
  if (id == TensorId::hidden && previous_ != nullptr && context_.reference_info.config.chain) {
    const std::string prefix = "layer " + std::to_string(layer_ - 1) + " ";
    add_tensor(*previous_, TensorId::hidden, prefix);
    add_tensor(*previous_, TensorId::hidden_out, prefix);
  }
  return result;
}

bool LayerComparer::taken(TensorId id) const {
  return context_.options.taken_from_reference && find(true, id) != nullptr && find(false, id) == nullptr;
}

Inputs LayerComparer::status(TensorId id) const {
  const auto found = status_.find(id);
  return found == status_.end() ? Inputs::unknown : found->second;
}

Inputs LayerComparer::rows_written_status(Cache cache) const {
  Inputs result = Inputs::identical;
  for (const TensorId id : rows_written(cache)) {
    const auto found = status_.find(id);
    if (found != status_.end()) result = worse(result, found->second);
  }
  return result;
}

}  // namespace dsv4::compare

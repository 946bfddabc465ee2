// Vectors with an exact tie at the cut of a selection, and results that chose the other entry of the tie:
//   cli_tie_vectors VECTORS.h5 RESULTS.h5
#include <algorithm>
#include <cstdio>

#include "model/error.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/golden/record.hpp"
#include "reference/engine.hpp"

using namespace dsv4;
using oracle::golden::KeptTensor;
using oracle::golden::Record;

namespace {

KeptTensor& tensor(Record& record, std::int64_t step, const char* stage, const char* name) {
  for (KeptTensor& kept : record.kept) {
    if (kept.step == step && kept.stage == stage && kept.tensor == name) return kept;
  }
  throw InternalError("the case keeps no such tensor");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Record record = oracle::golden::record(
      oracle::golden::cases_matching("canonical-csa").front(), "reference",
      [](const std::string&, const RunConfig& config, std::shared_ptr<const WeightSource> weights,
         std::shared_ptr<const HiddenSource> hidden) {
        return reference::make_reference_engine(config, std::move(weights), std::move(hidden));
      });
  // Lists that follow from the selection are another matter.
  std::erase_if(record.kept, [](const KeptTensor& kept) {
    return kept.stage == "attention.lists" || kept.stage == "attention.core" ||
           kept.stage == "output.project";
  });
  constexpr std::int64_t kStep = 0;
  KeptTensor& scores = tensor(record, kStep, "indexer.score", "scores");
  KeptTensor& selected = tensor(record, kStep, "indexer.select", "selected");
  const std::int64_t row = scores.content.dim(0) - 1;  // sees the most entries
  const auto visible = tensor(record, kStep, "indexer.score", "visible")
                           .content.as<std::int32_t>()[static_cast<std::size_t>(row)];
  float* const score = scores.content.as<float>().data() + row * scores.content.dim(1);
  std::int32_t* const chosen = selected.content.as<std::int32_t>().data() + row * selected.content.dim(1);
  const std::int64_t k = selected.content.dim(1);
  std::int64_t lowest = 0;
  for (std::int64_t i = 1; i < k; ++i) lowest = score[chosen[i]] < score[chosen[lowest]] ? i : lowest;
  std::int32_t other = 0;
  while (other < visible && std::find(chosen, chosen + k, other) != chosen + k) ++other;
  require(other < visible, "every entry is selected");
  score[other] = score[chosen[lowest]];
  oracle::golden::write_rows(argv[1], record);
  chosen[lowest] = other;
  std::sort(chosen, chosen + k);
  oracle::golden::write_rows(argv[2], record);
  return 0;
}

#include "scenario/event_json.hpp"

namespace dsv4::scenario {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Prefill& prefill) {
  return {{"prefill", {{"request", prefill.request.value}, {"tokens", prefill.tokens.value}}}};
}

Json to_json(const Decode& decode) {
  Json names = Json::array();
  for (const At<std::string>& request : decode.requests) names.push_back(request.value);
  return {{"decode", {{"requests", names}}}};
}

Json to_json(const Verify& verify) {
  return {
      {"verify",
       {{"request", verify.request.value}, {"rows", verify.rows.value}, {"accept", verify.accept.value}}}};
}

Json to_json(const Pad& pad) {
  return {{"pad", pad.rows.value}};
}

Json parts_json(const Batch& batch) {
  Json parts = Json::array();
  for (const BatchPart& part : batch.parts) {
    parts.push_back(std::visit([](const auto& body) { return to_json(body); }, part));
  }
  return parts;
}

Json to_json(const Batch& batch) {
  return {{"batch", parts_json(batch)}};
}

Json to_json(const Free& free) {
  Json body{{"request", free.request.value}};
  if (free.keep) body["keep"] = true;
  return {{"free", body}};
}

Json to_json(const Preempt& preempt) {
  return {{"preempt", {{"request", preempt.request.value}}}};
}

Json to_json(const Resume& resume) {
  Json body{{"request", resume.request.value}};
  if (resume.chunk) body["chunk"] = *resume.chunk;
  return {{"resume", body}};
}

Json to_json(const Rewind& rewind) {
  return {{"rewind", {{"request", rewind.request.value}, {"to", rewind.to.value}}}};
}

Json to_json(const HitPrefix& hit) {
  return {{"prefix_hit",
           {{"request", hit.request.value}, {"from", hit.from.value}, {"tokens", hit.tokens.value}}}};
}

Json to_json(const Save& save) {
  return {{"save", {{"request", save.request.value}, {"as", save.as.value}}}};
}

Json to_json(const Load& load) {
  Json body{{"request", load.request.value}, {"from", load.from.value}};
  if (load.chunk) body["chunk"] = *load.chunk;
  return {{"load", body}};
}

Json to_json(const Evict& evict) {
  const char* what = evict.what == Evict::What::window ? "window" : "kept";
  return {{"evict", {{"request", evict.request.value}, {"what", what}}}};
}

Json to_json(const PoisonMemory& poison) {
  const char* what = poison.what == PoisonMemory::What::freed ? "freed" : "unused";
  const char* value = poison.value == PoisonMemory::Value::nan ? "nan" : "large";
  return {{"poison", {{"what", what}, {"value", value}}}};
}

Json to_json(const FillCaches& fill) {
  return {{"fill", {{"request", fill.request.value}, {"tokens", fill.tokens.value}}}};
}

Json to_json(const Capture& capture) {
  return {{"capture", {{"as", capture.as.value}, {"rows", capture.rows.value}}}};
}

Json to_json(const ReplayGraph& replay) {
  return {{"replay_graph", {{"from", replay.from.value}, {"batch", parts_json(replay.batch)}}}};
}

}  // namespace

nlohmann::ordered_json event_json(const EventBody& body) {
  return std::visit([](const auto& event) { return to_json(event); }, body);
}

}  // namespace dsv4::scenario

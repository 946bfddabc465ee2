/// Runs the events of a scenario on paper: requests, pools and plans of all steps. Internal to src/scenario;
/// plan() runs it twice, first to find the sizes of pools and bases, then with them.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/memory.hpp"
#include "scenario/plan.hpp"
#include "scenario/request_state.hpp"

namespace dsv4::scenario {

/// A request's tokens when the run, or the request, ended.
struct Stream {
  std::int32_t request = 0;
  std::vector<std::uint64_t> ids;
  std::int32_t filled = 0;
};

class Planner {
 public:
  /// `config` has everything but `requests`; with `limited` also the sizes of pools and bases.
  Planner(RunConfig config, const Trace& trace, std::string file, bool limited);

  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  /// Plans one event; may append several steps.
  void run(const Event& event);
  /// Plans a request alone: a fill of its synthetic tokens, then one token a step.
  void run_alone(const std::string& name, const Stream& stream);

  const Memory& memory() const { return memory_; }
  /// The plan so far, with the requests' names.
  RunPlan take();
  /// One entry for each request by index; those still there included.
  std::vector<Stream> streams() const;

 private:
  using Json = nlohmann::ordered_json;

  /// A request's share of a compute step.
  struct Part {
    RequestState* request = nullptr;
    std::int32_t rows = 0;
    std::int32_t accept = 0;
    bool verify = false;
  };

  void on(const Event& event, const Prefill& prefill);
  void on(const Event& event, const Decode& decode);
  void on(const Event& event, const Verify& verify);
  void on(const Event& event, const Batch& batch);
  void on(const Event& event, const Free& free);
  void on(const Event& event, const Preempt& preempt);
  void on(const Event& event, const Resume& resume);
  void on(const Event& event, const Rewind& rewind);
  void on(const Event& event, const HitPrefix& hit);
  void on(const Event& event, const Save& save);
  void on(const Event& event, const Load& load);
  void on(const Event& event, const Evict& evict);
  void on(const Event& event, const PoisonMemory& poison);
  void on(const Event& event, const FillCaches& fill);
  void on(const Event& event, const Capture& capture);
  void on(const Event& event, const ReplayGraph& replay);

  // Steps.
  StepPlan begin(StepKind kind) const;
  /// Completes a step: number, event, live requests.
  void end(StepPlan step, Json event, const Json& caused);
  /// A step of rows, behind a restore step for each evicted request in it. `padded_to`: rows of a graph, or
  /// 0.
  void compute(StepKind kind, const std::vector<BatchPart>& parts, std::int32_t padded_to, Json event,
               Json caused);
  std::vector<Part> resolve(const BatchPart& part, StepPlan& step, Json& caused);
  void add_rows(StepPlan& step, const Part& part);
  void commit(StepPlan& step, const Part& part, Json& caused);
  /// Recomputes in `step` what is missing at the request's length; sets the kind of the step.
  void restore(StepPlan& step, RequestState& request, Json& caused);
  /// Rebuilds a request that holds nothing, `chunk` tokens a step; `first` is the first of these steps.
  void rebuild(StepPlan first, RequestState& request, std::optional<std::int32_t> chunk, const Json& event,
               Json caused);
  void restore_evicted(const std::string& name);
  /// Gives a new request synthetic caches for its first tokens.
  void synthesise(StepPlan& step, RequestState& request, std::int32_t tokens);

  // Requests.
  RequestState* find_live(const std::string& name) const;
  RequestState& live(const At<std::string>& name) const;
  void refuse_admitted(const At<std::string>& name) const;
  /// A new request with its base.
  RequestState& admit(const std::string& name);
  RequestState& insert(std::unique_ptr<RequestState> request);
  std::unique_ptr<RequestState> remove(RequestState& request);
  /// Gives back what a freed request of this name kept; false: nothing. Behind all that the step allocates: a page
  /// that it gives back is poisoned when it ends, whoever took it.
  bool end_keep(const std::string& name, StepPlan& step);
  void note_stream(const RequestState& request);
  void check_length(const At<std::string>& name, std::int64_t length) const;
  [[noreturn]] void fail(Mark mark, const std::string& message) const;

  RunConfig config_;
  const Trace& trace_;
  std::string file_;
  Memory memory_;
  Mark mark_;  ///< of the event being planned
  std::string source_;
  std::vector<StepPlan> steps_;
  std::int64_t rows_ = 0;
  std::vector<std::unique_ptr<RequestState>> live_;  ///< in order of admission
  std::map<std::string, std::unique_ptr<RequestState>> preempted_;
  std::map<std::string, std::unique_ptr<RequestState>> kept_;
  std::map<std::string, Identity> snapshots_;
  std::map<std::string, std::int32_t> graphs_;  ///< rows by name
  std::vector<Stream> streams_;
};

}  // namespace dsv4::scenario

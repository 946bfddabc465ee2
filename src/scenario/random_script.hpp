/// The events of a random scenario. Every event is possible where it stands: the script knows the length of
/// each request, who is preempted, freed, saved and captured. Lengths, chunks and rows lean to where things
/// change: one token around the ends of groups of 4 and 128, pages, windows and state rings. Internal to
/// src/scenario.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenario/dice.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario {

class RandomScript {
 public:
  /// At most about `tokens` rows in all.
  RandomScript(Dice& dice, const Model& model, const CacheConfig& cache, int tokens);

  std::vector<Event> make(int events);

 private:
  enum class Kind {
    admit,
    append,
    decode,
    verify,
    batch,
    free,
    keep,
    preempt,
    resume,
    free_preempted,
    rewind,
    prefix_hit,
    save,
    load,
    evict_window,
    evict_kept,
    poison,
    fill,
    capture,
    replay_graph,
  };
  struct Request {
    int length = 0;
    bool filled = false;  ///< has synthetic tokens, which nothing can compute again
  };
  using Requests = std::map<std::string, Request>;

  Kind kind();
  void event(Kind kind);
  void add(EventBody body) { events_.push_back({{}, std::move(body)}); }

  /// Tokens that bring a request of this length near an end of something; at least 1.
  int step_from(int length);
  /// A length from 0 to `longest`, mostly near such an end.
  int length_up_to(int longest);
  int spend(int rows);
  /// The name of a new request: a fresh one or that of a freed one.
  std::string new_name();
  const std::string& any(const Requests& requests);
  Request& computed(std::string& name);  ///< a live request without synthetic tokens
  std::optional<std::int32_t> chunk(int length);

  Prefill admit();
  Prefill append(const std::string& name);
  Verify verify(const std::string& name, int most_rows);
  Decode decode();
  /// Parts of one step of about `rows` rows, exactly at most so many without `chunks` of prefill.
  Batch batch(int rows, bool chunks);
  std::vector<std::string> donors() const;
  void prefix_hit();
  void replay_graph();

  Dice& dice_;
  std::vector<int> units_;  ///< of lengths
  int multiple_ = 1;        ///< of the length of a prefix hit
  int tokens_;              ///< rows left
  int next_ = 0;
  Requests live_, preempted_, kept_, saved_;
  std::vector<std::string> freed_;
  std::map<std::string, int> graphs_;
  std::vector<Event> events_;
};

}  // namespace dsv4::scenario

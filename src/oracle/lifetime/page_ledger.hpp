/// What the allocator has said so far: which pages and state bases are held, since when and by whom. Replayed
/// from the events of plans alone (allocated, released, block tables, bases), so it holds for every engine,
/// and it says where the plans contradict themselves (docs/numerics.md 12.2 and 20).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4::oracle {

class PageLedger {
 public:
  struct Page {
    bool held = false;
    std::int64_t since = -1;   ///< step that handed it out last; -1: never
    std::int64_t until = -1;   ///< step that gave it back last; -1: never
    std::int32_t holders = 0;  ///< requests whose tables name it
  };
  struct Base {
    std::int32_t request = -1;  ///< that holds it; -1: nobody
    std::int64_t since = -1;
    std::int64_t until = -1;
  };
  struct Request {
    std::shared_ptr<const BlockTables> tables;
    std::int32_t base = -1;
    bool kept = false;  ///< freed; its compressed and index pages stay
  };
  /// A contradiction between plans, or within one.
  struct Error {
    std::string kind;  ///< "page_handed_out_twice", "page_freed_twice", "page_freed_in_use", "page_not_held",
                       ///< "page_of_two", "base_handed_out_twice"
    Pool pool{};
    std::int64_t page = -1;  ///< or state base
    std::int32_t request = -1;
    std::string message;
  };

  /// The configuration must outlive the ledger.
  explicit PageLedger(const RunConfig& config) : config_(config) {}

  /// What holds while a step computes: pages handed out, tables of its requests.
  void begin(const StepPlan& plan);
  /// What holds when it has ended: tables of all requests, pages and bases given back.
  void end(const StepPlan& plan);

  const Page& page(Pool pool, std::int64_t page) const;
  const Base& base(std::int64_t base) const;
  /// Who holds pages, freed requests that keep some included, by index.
  const std::map<std::int32_t, Request>& requests() const { return requests_; }
  const Request* request(std::int32_t index) const;
  /// The first request whose table names a page; -1: none.
  std::int32_t holder_of(Pool pool, std::int64_t page) const;
  /// All pages that were ever handed out.
  const std::unordered_map<std::int64_t, Page>& pages(Pool pool) const {
    return pages_[static_cast<std::size_t>(pool)];
  }

  /// Contradictions of the step at hand, since begin().
  const std::vector<Error>& errors() const { return errors_; }

 private:
  void hold(std::int32_t request, const std::shared_ptr<const BlockTables>& tables, std::int32_t base,
            std::int64_t step);
  void leave(std::int32_t request);
  void end_keeps(const StepPlan& plan);
  std::string name_of(std::int32_t request) const;

  const RunConfig& config_;
  std::array<std::unordered_map<std::int64_t, Page>, kPoolCount> pages_;
  std::unordered_map<std::int64_t, Base> bases_;
  std::map<std::int32_t, Request> requests_;
  std::vector<Error> errors_;
};

}  // namespace dsv4::oracle

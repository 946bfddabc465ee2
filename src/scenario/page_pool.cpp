#include "scenario/page_pool.hpp"

#include <algorithm>
#include <string>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::scenario {

PagePool::PagePool(Pool pool, Allocate order, std::optional<std::int64_t> usable, std::uint64_t seed,
                   std::int32_t first)
    : order_(order), usable_(usable), draws_(seed, "allocate/" + std::string(name(pool)), 0), first_(first) {
  require(first == 1 || (usable && first >= 1 && first <= *usable), "the first page lies outside its pool");
  if (usable_) shuffled_free_ = *usable_;
}

std::optional<std::int32_t> PagePool::take() {
  if (usable_ && in_use_ == *usable_) return std::nullopt;
  const std::int32_t page = usable_ && order_ == Allocate::shuffled ? take_shuffled() : take_free();
  const auto index = static_cast<std::size_t>(page);
  if (index >= holders_.size()) {
    holders_.resize(index + 1, 0);
    touched_.resize(index + 1, false);
  }
  require(page != layout::kNullPage && holders_[index] == 0, "a page was handed out twice");
  holders_[index] = 1;
  touched_[index] = true;
  peak_ = std::max(peak_, ++in_use_);
  return page;
}

std::int32_t PagePool::take_free() {
  const bool fresh_left = !usable_ || fresh_taken_ < *usable_;
  const bool fresh = order_ == Allocate::sequential && usable_ ? fresh_left : freed_.empty();
  if (fresh) {
    const std::int64_t place = first_ - 1 + fresh_taken_++;
    return static_cast<std::int32_t>((usable_ ? place % *usable_ : place) + 1);
  }
  const bool oldest = order_ == Allocate::sequential;
  const std::int32_t page = oldest ? freed_.front() : freed_.back();
  if (oldest) {
    freed_.pop_front();
  } else {
    freed_.pop_back();
  }
  return page;
}

std::int32_t PagePool::shuffled_at(std::int64_t place) const {
  const auto found = shuffled_.find(place);
  return found == shuffled_.end() ? static_cast<std::int32_t>(place + 1) : found->second;
}

std::int32_t PagePool::take_shuffled() {
  const auto place = static_cast<std::int64_t>(draws_.word(drawn_++)) % shuffled_free_;
  const std::int32_t page = shuffled_at(place);
  --shuffled_free_;
  shuffled_[place] = shuffled_at(shuffled_free_);
  shuffled_.erase(shuffled_free_);
  return page;
}

void PagePool::share(std::int32_t page) {
  require(holders(page) > 0, "a free page was shared");
  ++holders_[static_cast<std::size_t>(page)];
}

bool PagePool::give(std::int32_t page) {
  require(holders(page) > 0, "a page was given back twice");
  if (--holders_[static_cast<std::size_t>(page)] > 0) return false;
  --in_use_;
  if (usable_ && order_ == Allocate::shuffled) {
    shuffled_[shuffled_free_++] = page;
  } else {
    freed_.push_back(page);
  }
  return true;
}

std::int32_t PagePool::holders(std::int32_t page) const {
  const auto index = static_cast<std::size_t>(page);
  return page > 0 && index < holders_.size() ? holders_[index] : 0;
}

std::vector<std::int32_t> PagePool::free_pages(bool fresh) const {
  std::vector<std::int32_t> pages;
  for (std::size_t page = 1; page < holders_.size(); ++page) {
    if (holders_[page] == 0 && (fresh || touched_[page])) pages.push_back(static_cast<std::int32_t>(page));
  }
  if (fresh && usable_) {
    for (auto page = static_cast<std::int64_t>(holders_.size()); page <= *usable_; ++page) {
      pages.push_back(static_cast<std::int32_t>(page));
    }
  }
  return pages;
}

std::int32_t StateBases::take() {
  const auto free = std::ranges::find(taken_, false);
  const auto base = static_cast<std::int32_t>(free - taken_.begin());
  if (free == taken_.end()) {
    taken_.push_back(true);
  } else {
    *free = true;
  }
  return base;
}

void StateBases::give(std::int32_t base) {
  require(base >= 0 && base < peak() && taken_[static_cast<std::size_t>(base)],
          "a state base was given back twice");
  taken_[static_cast<std::size_t>(base)] = false;
}

std::vector<std::int32_t> StateBases::free_bases(std::int32_t limit, bool fresh) const {
  std::vector<std::int32_t> bases;
  for (std::int32_t base = 0; base < limit; ++base) {
    const bool known = base < peak();
    if (known ? !taken_[static_cast<std::size_t>(base)] : fresh) bases.push_back(base);
  }
  return bases;
}

}  // namespace dsv4::scenario

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "oracle/explain/explain.hpp"

namespace dsv4::oracle::explain {
namespace {

/// As part of a sentence: "The overlap's" but "ReLU is", which is a name.
std::string lowered(std::string text) {
  const auto is_capital = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  const auto end = std::ranges::find(text, ' ');
  if (!text.empty() && std::none_of(text.begin() + 1, end, is_capital))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string steps_words(const Explanation& all) {
  return all.first_step == all.last_step ? fmt::format("step {}", all.last_step)
                                         : fmt::format("steps {} to {}", all.first_step, all.last_step);
}

std::string called(const Candidate& one) {
  switch (one.kind) {
    case Candidate::Kind::fault:
      return fmt::format("fault `{}`", one.name);
    case Candidate::Kind::variation:
      return fmt::format("variation `{}`, which is no fault,", one.name);
    case Candidate::Kind::axis:
      return fmt::format("axis `{}`", one.name);
    case Candidate::Kind::profile:
      return fmt::format("profile `{}`", one.name);
    case Candidate::Kind::model:
      return fmt::format("kernel models `{}`", one.name);
    case Candidate::Kind::axes:
      return fmt::format("axes `{}` together", one.name);
  }
  return one.name;
}

std::string place(const FirstDifference& first) {
  if (first.layer < 0) return fmt::format("{} of step {}", first.stage, first.step);
  return fmt::format("{} of step {}, layer {}", first.stage, first.step, first.layer);
}

std::string all_of_it(const Explanation& all) {
  return fmt::format("all {} tensors and states of {} {}", all.compared, steps_words(all),
                     all.bits ? "bit for bit" : "within their rules");
}

std::string names_of(const std::vector<const Evidence*>& some) {
  std::string text;
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (i > 0) text += i + 1 == some.size() ? " and " : ", ";
    text += fmt::format("`{}`", some[i]->candidate.name);
  }
  return text;
}

std::string explained(const Explanation& all) {
  const std::vector<const Evidence*> some = all.reproducing();
  const Evidence& one = *some.front();
  // Where only later stages were recorded, the place where it shows is not the place where it goes wrong.
  const bool here =
      one.candidate.kind == Candidate::Kind::fault && one.candidate.reported == all.first->stage;
  std::string text =
      fmt::format("The subject {} at {}: {} reproduces {} ({})", here ? "goes wrong" : "leaves the reference",
                  place(*all.first), called(one.candidate), all_of_it(all), lowered(one.candidate.meaning));
  if (some.size() > 1)
    text += fmt::format("; of its parameters this run cannot tell {} apart", names_of(some));
  return text;
}

std::string isolated(const Explanation& all) {
  if (!all.isolation || all.isolation->total == 0) return "";
  const Isolation& isolation = *all.isolation;
  if (isolation.equal == isolation.total)
    return fmt::format("; nothing but {} is wrong: with its foreign tensors in place all {} others agree{}",
                       all.first->stage, isolation.total,
                       isolation.stopped.empty() ? "" : " until the reference stops as well");
  return fmt::format(
      "; {} is not all: with its foreign tensors in place {} of {} others still differ, first {}",
      all.first->stage, isolation.total - isolation.equal, isolation.total, isolation.first_left);
}

}  // namespace

std::string sentence_of(const Explanation& all) {
  using Outcome = Explanation::Outcome;
  if (all.outcome == Outcome::no_difference || !all.first) {
    std::string text = fmt::format("Nothing differs in {} tensors and states of steps {} to {}", all.compared,
                                   all.first_step, all.last_step);
    if (all.dont_care > 0)
      text += fmt::format(
          ", but for {} elements that no rule judges (padding, scores beyond `visible`, spare bytes)",
          all.dont_care);
    return text + ".";
  }
  std::string text;
  if (all.outcome == Outcome::explained) {
    text = explained(all);
  } else if (all.outcome == Outcome::ambiguous) {
    const std::vector<const Evidence*> some = all.reproducing();
    text = fmt::format(
        "The subject leaves the reference at {}: {} reproduce {} alike, so another scenario must tell "
        "them apart",
        place(*all.first), names_of(some), all_of_it(all));
  } else if (all.outcome == Outcome::stage_only) {
    const Evidence& one = all.ranked.front();
    text = fmt::format(
        "The subject leaves the reference at {}, where {} gives the same bits ({}), but {} of {} later "
        "tensors and states still differ, first {}: there is something else, or it is something else",
        place(*all.first), called(one.candidate), lowered(one.candidate.meaning),
        one.later_total - one.later_equal, one.later_total, one.first_left);
  } else {
    text = fmt::format("The subject leaves the reference at {}", place(*all.first));
    if (const TensorReading* one = all.certain_reading()) {
      text += one->reading.differing == 1
                  ? fmt::format(": in the one differing element of {} {}", one->tensor, one->reading.sentence)
                  : fmt::format(": in all {} differing elements of {} {}", one->reading.differing,
                                one->tensor, one->reading.sentence);
    } else if (!all.ranked.empty() && all.ranked.front().removed() >= 0.5) {
      const Evidence& nearest = all.ranked.front();
      text += fmt::format(
          " as nothing {} does; nearest is {}, which explains {:.1f} % of the differing elements and "
          "{:.1f} % of the error",
          all.left_out > 0 ? "that was tried" : "known", called(nearest.candidate),
          100 * nearest.elements_explained, 100 * nearest.error_removed);
    } else {
      text += all.left_out > 0 ? " as nothing that was tried does"
                               : " as no known fault, profile axis or kernel model does";
    }
    text += isolated(all);
  }
  if (all.outcome == Outcome::explained && all.differing < Explanation::kFewest)
    text += fmt::format("; no more than {} {} in the whole run, so let a longer scenario confirm it",
                        all.differing, all.differing == 1 ? "thing differs" : "things differ");
  if (all.left_out > 0) text += fmt::format("; {} candidates were not tried for want of time", all.left_out);
  if (!all.whole_run) text += fmt::format("; the run was recorded up to step {}", all.last_step);
  return text + ".";
}

}  // namespace dsv4::oracle::explain

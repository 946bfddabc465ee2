#include "oracle/selection.hpp"

#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

TEST_CASE("globs match as in a shell") {
  CHECK(glob_match("*", ""));
  CHECK(glob_match("compress.*", "compress.pool"));
  CHECK_FALSE(glob_match("compress.*", "indexer.pool"));
  CHECK(glob_match("*.pool", "indexer.pool"));
  CHECK(glob_match("*o*l", "compress.pool"));
  CHECK_FALSE(glob_match("*o*x", "compress.pool"));
  CHECK(glob_match("q.?p", "q.up"));
  CHECK_FALSE(glob_match("q.?", "q.up"));
  CHECK(glob_match("a*b*c", "abbbcbc"));
  CHECK_FALSE(glob_match("", "a"));
}

TEST_CASE("step ranges are half-open, from 0") {
  const auto steps = [](const char* text) { return parse_selection({}, {}, text); };
  CHECK(steps("2:4").has_step(2));
  CHECK(steps("2:4").has_step(3));
  CHECK_FALSE(steps("2:4").has_step(4));
  CHECK_FALSE(steps("2:4").has_step(1));
  CHECK(steps("7").has_step(7));
  CHECK_FALSE(steps("7").has_step(8));
  CHECK(steps(":1").has_step(0));
  CHECK(steps("5:").has_step(1000000));
  CHECK_THROWS_AS(steps("4:4"), UsageError);
  CHECK_THROWS_AS(steps("x"), UsageError);
  CHECK_THROWS_AS(steps("-1:2"), UsageError);
  CHECK_THROWS_AS(steps("1:2:3"), UsageError);
}

TEST_CASE("stages and tensors narrow each other, and unknown names are refused") {
  const std::vector<std::string> stages{"compress.*,q.up"};
  Selection selection = parse_selection(stages, {}, "");
  CHECK(selection.has_tensor(TensorId::compress_pooled));
  CHECK(selection.has_tensor(TensorId::q));
  CHECK_FALSE(selection.has_tensor(TensorId::indexer_pooled));
  CHECK_FALSE(selection.snapshots);

  const std::vector<std::string> tensors{"pooled", "state"};
  selection = parse_selection(stages, tensors, "");
  CHECK(selection.tensors.count() == 1);
  CHECK(selection.has_tensor(TensorId::compress_pooled));
  CHECK(selection.snapshots);

  const std::vector<std::string> by_path{"indexer.pool/pooled"};
  CHECK(parse_selection({}, by_path, "").tensors.count() == 1);
  CHECK_THROWS_AS(parse_selection(std::vector<std::string>{"attention"}, {}, ""), UsageError);
  CHECK_THROWS_AS(parse_selection({}, std::vector<std::string>{"nothing"}, ""), UsageError);
  CHECK_THROWS_AS(parse_selection(stages, std::vector<std::string>{"scores"}, ""), UsageError);
}

TEST_CASE("a selection that matches nothing of a run is refused") {
  const std::vector<LayerKind> window_only{LayerKind::swa};
  const auto refused = [&](const char* stage, const char* steps, std::int64_t first, std::int64_t end) {
    const std::vector<std::string> stages{stage};
    try {
      require_match(parse_selection(stages, {}, steps), window_only, first, end);
    } catch (const UsageError&) {
      return true;
    }
    return false;
  };
  CHECK_FALSE(refused("*", "", 0, 4));
  CHECK_FALSE(refused("*", "3:9", 0, 4));
  CHECK(refused("*", "99:100", 0, 4));
  CHECK(refused("*", "4:5", 0, 4));
  CHECK(refused("*", "0:2", 2, 4));  // behind a checkpoint
  CHECK(refused("*", "", 4, 4));
  CHECK(refused("indexer.*", "", 0, 4));
  CHECK_FALSE(refused("indexer.*,kv.window", "", 0, 4));
}

TEST_CASE("what a dump was told to keep is stated in words that read back") {
  const std::vector<std::string> stages{"q.up"};
  const io::DumpSelection all = stated(parse_selection({}, {}, "0:9"), 0, 4);
  CHECK(all.steps == "all");
  CHECK(all.tensors == "all");
  const io::DumpSelection some = stated(parse_selection(stages, {}, "1:3"), 0, 4);
  CHECK(some.steps == "1:3");
  CHECK(some.tensors == "q.up/raw,q.up/normed,q.up/q");
  CHECK(stated(parse_selection({}, {}, ""), 2, 4).steps == "2:4");
  const std::vector<std::string> tensors{some.tensors};
  CHECK(parse_selection({}, tensors, "").tensors == parse_selection(stages, {}, "").tensors);
}

TEST_CASE("engines of one kind are equally exact, with the same axes and state forms") {
  SourceInfo a;
  SourceInfo b;
  CHECK(same_kind(a, b));
  b.config.cache.c4_state = C4State::paged;  // publishes the same tensors
  CHECK(same_kind(a, b));
  b.config.cache.c128_state = C128State::online;
  CHECK_FALSE(same_kind(a, b));
  b = a;
  b.bit_exact = false;
  CHECK_FALSE(same_kind(a, b));
  b = a;
  b.config.profile = profile_named("official");
  CHECK_FALSE(same_kind(a, b));
}

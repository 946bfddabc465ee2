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

#include "io/hidden_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "io/hdf5_file.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// Rows read at once; neighbours are asked for next.
constexpr std::int64_t kBlockRows = 64;

/// The rows of one request, a block of them in memory.
struct RequestRows {
  std::string path;                                      ///< in the file
  std::vector<std::int64_t> shape;                       ///< [tokens, dim] or [layers, tokens, dim]
  std::map<int, std::pair<std::int64_t, Tensor>> block;  ///< by layer of the dataset: first row and rows
};

class FileHidden : public HiddenSource {
 public:
  FileHidden(const RunConfig& config, const std::string& path)
      : config_(config), file_(Hdf5File::open(path)), rows_(config.requests.size()) {
    for (std::size_t index = 0; index < rows_.size(); ++index) {
      RequestRows& rows = rows_[index];
      rows.path = "/hidden/" + config.requests[index];
      if (!file_.exists(rows.path)) {
        throw FileError(
            fmt::format("{}: there is no {} for request '{}'", path, rows.path, config.requests[index]));
      }
      if (file_.text(rows.path, "dtype") != name(DType::bfloat16)) {
        throw FileError(fmt::format("{}: {} has dtype '{}', expected 'bfloat16'", path, rows.path,
                                    file_.text(rows.path, "dtype")));
      }
      rows.shape = file_.dataset_info(rows.path).shape;
      const bool layered = rows.shape.size() == 3;
      if ((!layered && rows.shape.size() != 2) || rows.shape.back() != config.geometry.dim ||
          (layered && rows.shape[0] != static_cast<std::int64_t>(config.layers.size()))) {
        throw FileError(fmt::format("{}: {} has shape [{}], expected [tokens, {}] or [{}, tokens, {}]", path,
                                    rows.path, fmt::join(rows.shape, ", "), config.geometry.dim,
                                    config.layers.size(), config.geometry.dim));
      }
    }
  }

  void hidden(int layer, const Row& row, std::span<std::uint16_t> out) const override {
    require(row.request >= 0 && static_cast<std::size_t>(row.request) < rows_.size(),
            "hidden states of no request");
    const std::lock_guard lock(mutex_);
    RequestRows& rows = rows_[static_cast<std::size_t>(row.request)];
    const std::int64_t tokens = rows.shape[rows.shape.size() - 2];
    if (row.position < 0 || row.position >= tokens) {
      throw FileError(fmt::format("{}: request '{}' needs the hidden state of position {}; {} has {} rows",
                                  file_.path(), config_.requests[static_cast<std::size_t>(row.request)],
                                  row.position, rows.path, tokens));
    }
    const int source = rows.shape.size() == 3 ? layer : 0;
    auto& [first, block] = rows.block[source];
    if (block.bytes().empty() || row.position < first || row.position >= first + held(block)) {
      first = row.position / kBlockRows * kBlockRows;
      block = read(rows, source, first, std::min(kBlockRows, tokens - first));
    }
    const auto dim = static_cast<std::size_t>(config_.geometry.dim);
    require(out.size() == dim, "hidden states of another width");
    const auto values = block.as<std::uint16_t>();
    std::ranges::copy(values.subspan(static_cast<std::size_t>(row.position - first) * dim, dim), out.begin());
  }

 private:
  std::int64_t held(const Tensor& block) const { return block.elements() / config_.geometry.dim; }

  /// Rows of one layer; a file with layers is read one layer's rows at a time.
  Tensor read(const RequestRows& rows, int layer, std::int64_t first, std::int64_t count) const {
    if (rows.shape.size() == 2) return file_.read_rows(rows.path, DType::bfloat16, first, count);
    return file_.read_rows_of(rows.path, DType::bfloat16, layer, first, count);
  }

  RunConfig config_;
  Hdf5File file_;
  mutable std::mutex mutex_;
  mutable std::vector<RequestRows> rows_;
};

}  // namespace

std::shared_ptr<const HiddenSource> file_hidden(const RunConfig& config, const std::string& path) {
  return std::make_shared<FileHidden>(config, path);
}

}  // namespace dsv4::io

#include "oracle/golden/export.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"
#include "io/vectors.hpp"
#include "io/weight_files.hpp"
#include "model/digest.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/golden/vectors.hpp"

namespace dsv4::oracle::golden {
namespace {
namespace fs = std::filesystem;

std::string in(const std::string& folder, const std::string& file) {
  return (fs::path(folder) / file).string();
}

void write_text(const std::string& path, const std::string& text) {
  io::AtomicFile out(path);
  out.write(text);
  out.finish();
}

}  // namespace

std::vector<std::string> export_hdf5(const std::string& folder, const std::vector<Record>& records) {
  std::vector<std::string> files;
  for (const Record& record : records) {
    if (record.kept.empty()) continue;
    files.push_back(in(folder, record.golden_case.name + ".h5"));
    write_rows(files.back(), record);
  }
  return files;
}

std::vector<std::string> export_safetensors(const std::string& folder, const std::vector<Record>& records) {
  std::vector<std::string> files;
  nlohmann::ordered_json manifest;
  manifest["schema"] = kSchema;
  manifest["spec_revision"] = "1";
  manifest["cases"] = nlohmann::ordered_json::array();
  for (const Record& record : records) {
    if (record.kept.empty()) continue;
    const std::string name = record.golden_case.name;
    nlohmann::ordered_json about{{"name", name},
                                 {"file", name + ".safetensors"},
                                 {"profile", record.config.profile.name},
                                 {"layer", dsv4::name(record.config.layers.front())},
                                 {"seed", record.config.seed},
                                 {"scenario", record.golden_case.scenario}};
    if (!record.kernel_models.empty()) about["kernel_models"] = record.kernel_models;
    std::vector<io::StOutput> tensors;
    std::map<std::string, std::string> metadata{{"schema", kSchema},
                                                {"case", name},
                                                {"seed", std::to_string(record.config.seed)},
                                                {"spec_revision", "1"}};
    for (const KeptTensor& kept : record.kept) {
      const std::string text = digest(kept.content);
      tensors.push_back({kept.path(), io::safetensors_dtype(kept.content.dtype()), kept.content.shape(),
                         kept.content.bytes()});
      metadata["digest:" + kept.path()] = text;
      about["tensors"].push_back({{"name", kept.path()},
                                  {"dtype", dsv4::name(kept.content.dtype())},
                                  {"shape", kept.content.shape()},
                                  {"dims", kept.dims},
                                  {"role", kept.role},
                                  {"rows", kept.rows},
                                  {"digest", text}});
    }
    files.push_back(in(folder, name + ".safetensors"));
    io::write_safetensors(files.back(), std::move(tensors), metadata);
    manifest["cases"].push_back(std::move(about));
  }
  files.push_back(in(folder, "manifest.json"));
  write_text(files.back(), manifest.dump(1) + "\n");
  return files;
}

std::vector<std::string> export_json(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& [stem, content] : vector_files()) {
    files.push_back(in(folder, stem + ".json"));
    io::write_vectors(files.back(), content);
  }
  return files;
}

std::vector<std::string> export_case_weights(const std::string& folder, const std::vector<Record>& records) {
  std::vector<std::string> files;
  for (const Record& record : records) {
    files.push_back(in(folder, record.golden_case.name + ".weights.safetensors"));
    io::export_weights(*record.weights, record.config, files.back());
  }
  return files;
}

}  // namespace dsv4::oracle::golden

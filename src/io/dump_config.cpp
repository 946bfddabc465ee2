#include "io/dump_config.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "io/dump_checks.hpp"
#include "io/dump_format.hpp"
#include "model/config_check.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

constexpr std::array<std::string_view, 3> kC4Names{"ring", "paged", "page4align"};
constexpr std::array<std::string_view, 3> kC128Names{"ring", "paged", "online"};
constexpr std::array<std::string_view, 3> kAllocateNames{"sequential", "shuffled", "lifo"};
constexpr std::array<std::string_view, 2> kReleaseNames{"eager", "never"};

constexpr std::string_view kConfig = "/config";

/// The attributes of /config with defaults for those that a foreign file may leave out.
class ConfigReader {
 public:
  explicit ConfigReader(const Hdf5File& file) : file_(file) {}

  template <class Integer>
  void required(const char* name, Integer& value) const {
    const std::int64_t read = file_.integer(std::string(kConfig), name);
    value = static_cast<Integer>(read);
    if (value != read) refuse(name, read, "too large");
  }
  template <class Integer>
  void optional(const char* name, Integer& value) const {
    if (file_.attribute(std::string(kConfig), name)) required(name, value);
  }
  /// Like optional(), with a range.
  template <class Integer>
  void optional(const char* name, Integer& value, std::int64_t lowest, std::int64_t highest) const {
    optional(name, value);
    if (value < lowest || value > highest) {
      refuse(name, value, "must be " + std::to_string(lowest) + " to " + std::to_string(highest));
    }
  }
  void optional_flag(const char* name, bool& value) const {
    std::int64_t flag = value ? 1 : 0;
    optional(name, flag, 0, 1);
    value = flag != 0;
  }
  [[noreturn]] void refuse(const char* name, std::int64_t value, const std::string& rule) const {
    throw FileError(file_.path() + ": /config attribute '" + name + "' is " + std::to_string(value) + " (" +
                    rule + ")");
  }
  double real(const char* name) const {
    const auto value = file_.attribute(std::string(kConfig), name);
    if (value) {
      if (const auto* held = std::get_if<double>(&*value)) return *held;
      if (const auto* held = std::get_if<float>(&*value)) return *held;
    }
    throw FileError(file_.path() + ": /config has no real attribute '" + name + "'");
  }
  template <class Enum>
  void choice(const char* name, std::span<const std::string_view> names, Enum& value, bool must) const {
    if (!must && !file_.attribute(std::string(kConfig), name)) return;
    const std::string text = file_.text(std::string(kConfig), name);
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) {
      throw FileError(file_.path() + ": /config attribute '" + name + "' has the unknown value '" + text +
                      "'");
    }
    value = static_cast<Enum>(found - names.begin());
  }

 private:
  const Hdf5File& file_;
};

template <class Enum>
std::string named(std::span<const std::string_view> names, Enum value) {
  return std::string(names[static_cast<std::size_t>(value)]);
}

Attributes geometry_attributes(const Geometry& g) {
  return {{"dim", std::int64_t{g.dim}},
          {"q_lora", std::int64_t{g.q_lora}},
          {"heads", std::int64_t{g.heads}},
          {"head_dim", std::int64_t{kHeadDim}},
          {"rope_dim", std::int64_t{kRopeDim}},
          {"o_groups", std::int64_t{g.o_groups}},
          {"o_lora", std::int64_t{g.o_lora}},
          {"index_heads", std::int64_t{g.index_heads}},
          {"index_dim", std::int64_t{kIndexDim}},
          {"index_topk", std::int64_t{g.index_topk}},
          {"window", std::int64_t{kWindow}},
          {"eps", g.eps},
          {"rope_theta", g.rope_theta},
          {"compress_rope_theta", g.compress_rope_theta},
          {"yarn_factor", g.yarn_factor},
          {"yarn_original", g.yarn_original},
          {"beta_fast", g.beta_fast},
          {"beta_slow", g.beta_slow}};
}

Attributes cache_attributes(const CacheConfig& c) {
  return {{"swa_page", std::int64_t{c.swa_page}},
          {"c4_page", std::int64_t{c.c4_page}},
          {"c128_page", std::int64_t{c.c128_page}},
          {"index_page", std::int64_t{c.index_page}},
          {"c4_state", named(kC4Names, c.c4_state)},
          {"c128_state", named(kC128Names, c.c128_state)},
          {"ring_c4", std::int64_t{ring_rows_c4(c)}},
          {"ring_c128", std::int64_t{ring_rows_c128(c)}},
          {"draft_rows", std::int64_t{c.draft_rows}},
          {"allocate", named(kAllocateNames, c.allocate)},
          {"swa_release", named(kReleaseNames, c.swa_release)},
          {"poison_freed", std::int64_t{c.poison_freed}},
          {"pitch", std::int64_t{c.pitch.value_or(0)}}};
}

void read_geometry(const Hdf5File& file, const ConfigReader& config, Geometry& g) {
  config.required("dim", g.dim);
  config.required("q_lora", g.q_lora);
  config.required("heads", g.heads);
  config.required("o_groups", g.o_groups);
  config.required("o_lora", g.o_lora);
  config.required("index_heads", g.index_heads);
  config.required("index_topk", g.index_topk);
  config.required("yarn_original", g.yarn_original);
  g.eps = static_cast<float>(config.real("eps"));
  g.rope_theta = config.real("rope_theta");
  g.compress_rope_theta = config.real("compress_rope_theta");
  g.yarn_factor = config.real("yarn_factor");
  g.beta_fast = config.real("beta_fast");
  g.beta_slow = config.real("beta_slow");
  for (const auto& [name, fixed] : {std::pair{"head_dim", kHeadDim}, std::pair{"rope_dim", kRopeDim},
                                    std::pair{"index_dim", kIndexDim}, std::pair{"window", kWindow}}) {
    std::int64_t value = 0;
    config.required(name, value);
    if (value != fixed) {
      throw FileError(file.path() + ": /config attribute '" + name + "' is " + std::to_string(value) +
                      "; only " + std::to_string(fixed) + " is known");
    }
  }
  try {
    check(g);
  } catch (const UsageError& error) {
    throw FileError(file.path() + ": /config: " + error.what());
  }
}

void read_cache(const Hdf5File& file, const ConfigReader& config, CacheConfig& c) {
  config.required("swa_page", c.swa_page);
  config.required("c4_page", c.c4_page);
  config.required("c128_page", c.c128_page);
  config.required("index_page", c.index_page);
  config.choice("c4_state", kC4Names, c.c4_state, true);
  config.choice("c128_state", kC128Names, c.c128_state, true);
  config.optional("draft_rows", c.draft_rows);
  config.choice("allocate", kAllocateNames, c.allocate, false);
  config.choice("swa_release", kReleaseNames, c.swa_release, false);
  std::int64_t pitch = 0;
  config.optional_flag("poison_freed", c.poison_freed);
  config.optional("pitch", pitch);
  if (pitch != 0) c.pitch = pitch;
  try {
    check(c);
  } catch (const UsageError& error) {
    throw FileError(file.path() + ": /config: " + error.what());
  }
  for (const auto& [name, rows] :
       {std::pair{"ring_c4", ring_rows_c4(c)}, std::pair{"ring_c128", ring_rows_c128(c)}}) {
    std::int64_t stated = rows;
    config.optional(name, stated);
    if (stated != rows) {
      config.refuse(name, stated, "with these draft_rows it is " + std::to_string(rows));
    }
  }
}

void read_profile(const Hdf5File& file, Profile& profile) {
  // A foreign profile keeps its name; its axes say what it computes.
  for (const std::string_view known : profile_names()) {
    if (known == profile.name) profile = profile_named(known);
  }
  for (const AxisInfo& axis : axes()) {
    const auto value = file.attribute(std::string(kConfig), std::string(axis.name));
    if (!value) continue;
    try {
      profile.set(axis.name, file.text(std::string(kConfig), std::string(axis.name)));
    } catch (const UsageError& error) {
      throw FileError(file.path() + ": /config: " + error.what());
    }
  }
}

void read_layers(const Hdf5File& file, std::vector<LayerKind>& layers) {
  for (const Child& child : file.children(std::string(kConfig))) {
    const std::int64_t layer = layer_number(child.name);
    if (layer < 0) continue;
    if (layer != static_cast<std::int64_t>(layers.size())) {
      throw FileError(file.path() + ": /config has " + child.name + " but not " + layer_name(layers.size()));
    }
    const std::string path = std::string(kConfig) + "/" + child.name;
    const std::int64_t ratio = file.integer(path, "ratio");
    if (ratio != 0 && ratio != 4 && ratio != 128) {
      throw FileError(file.path() + ": " + path + " has the unknown ratio " + std::to_string(ratio));
    }
    layers.push_back(static_cast<LayerKind>(ratio));
    if (layers.size() > static_cast<std::size_t>(kMaxLayers)) {
      throw FileError(file.path() + ": /config has more than " + std::to_string(kMaxLayers) + " layers");
    }
  }
}

}  // namespace

void write_config(Hdf5Group& root, const SourceInfo& source, const std::optional<DumpSelection>& selection,
                  const StorageOptions& options) {
  const RunConfig& run = source.config;
  Hdf5Group config = root.create_group("config");
  for (const auto& [name, value] : geometry_attributes(run.geometry)) config.set(name, value);
  for (const auto& [name, value] : cache_attributes(run.cache)) config.set(name, value);
  for (const AxisInfo& axis : axes()) {
    config.set(std::string(axis.name), std::string(run.profile.value(axis.axis)));
  }
  config.set("chain", std::int64_t{run.chain});
  config.set("bit_exact", std::int64_t{source.bit_exact});
  config.set("state_bases", std::int64_t{run.state_bases});
  if (selection) {
    config.set("selected_steps", selection->steps);
    config.set("selected_tensors", selection->tensors);
  }
  for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
    config.set("pages_" + std::string(name(static_cast<Pool>(pool))), run.pool_pages[pool]);
  }
  for (std::size_t layer = 0; layer < run.layers.size(); ++layer) {
    config.create_group(layer_name(static_cast<std::int64_t>(layer)))
        .set("ratio", std::int64_t{ratio(run.layers[layer])});
  }
  root.write_strings("requests", run.requests, options);
}

void read_config(const Hdf5File& file, SourceInfo& source) {
  RunConfig& run = source.config;
  const ConfigReader config(file);
  read_geometry(file, config, run.geometry);
  read_cache(file, config, run.cache);
  read_profile(file, run.profile);
  source.bit_exact = source.engine != "wide";
  config.optional_flag("chain", run.chain);
  config.optional_flag("bit_exact", source.bit_exact);
  config.optional("state_bases", run.state_bases, 0, kMaxTokens);
  for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
    const std::string attribute = "pages_" + std::string(name(static_cast<Pool>(pool)));
    config.optional(attribute.c_str(), run.pool_pages[pool], 0, kMaxPoolPages + 1);
  }
  read_layers(file, run.layers);
  if (const std::string fault = drafting_fault(run.cache, run.layers); !fault.empty()) {
    throw FileError(file.path() + ": /config: " + fault);
  }
  if (!file.exists("/requests")) return;
  run.requests = file.read_strings("/requests");
  for (const std::string& request : run.requests)
    check_plain_text(request, file.path(), "a name of /requests");
}

std::optional<DumpSelection> read_selection(const Hdf5File& file) {
  const std::string config(kConfig);
  if (!file.attribute(config, "selected_steps")) return std::nullopt;
  return DumpSelection{file.text(config, "selected_steps"), file.text(config, "selected_tensors")};
}

}  // namespace dsv4::io

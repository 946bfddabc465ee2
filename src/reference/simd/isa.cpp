#include "reference/simd/isa.hpp"

#include <string>

#include "model/error.hpp"

namespace dsv4::reference {
namespace {

Isa chosen = best_isa();

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::generic:
      return "generic";
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  return {Isa::generic};
}

Isa best_isa() {
  return available_isas().back();
}

Isa isa_from_name(std::string_view text) {
  std::string known;
  for (const Isa isa : available_isas()) {
    if (name(isa) == text) return isa;
    known += (known.empty() ? "" : ", ") + std::string(name(isa));
  }
  throw UsageError("instruction set '" + std::string(text) +
                   "' is unknown or this machine cannot run it (known: " + known + ")");
}

void select_isa(Isa isa) {
  chosen = isa_from_name(name(isa));
}

Isa selected_isa() {
  return chosen;
}

}  // namespace dsv4::reference

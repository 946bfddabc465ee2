#include "model/step_plan.hpp"

namespace dsv4 {

std::string_view name(Pool pool) {
  constexpr std::array<std::string_view, kPoolCount> kNames{"window",   "entries_c4", "entries_c128", "index",
                                                            "state_c4", "state_c128", "state_index"};
  return kNames[static_cast<std::size_t>(pool)];
}

Pool pool_of(LayerKind kind, Cache cache) {
  switch (cache) {
    case Cache::window:
      return Pool::window;
    case Cache::entries:
      return kind == LayerKind::csa ? Pool::entries_c4 : Pool::entries_c128;
    case Cache::index_entries:
      return Pool::index;
    case Cache::state:
      return kind == LayerKind::csa ? Pool::state_c4 : Pool::state_c128;
    case Cache::index_state:
      return Pool::state_index;
  }
  throw InternalError("unknown cache");
}

}  // namespace dsv4

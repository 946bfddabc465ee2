/// Names of the tables of a step: in dumps below `/state/NNNNNN/tables`, in reports beside `state`.
#pragma once

#include <array>
#include <string_view>

#include "model/observation.hpp"

namespace dsv4 {

struct TableInfo {
  std::string_view name;
  Tensor TableState::* rows;
  std::string_view dims;
  std::string_view columns;  ///< comma separated
  int keys;                  ///< the first columns name a row, the rest are its values
};

inline constexpr std::array<TableInfo, 4> kTables{
    TableInfo{"block_tables", &TableState::blocks, "item,field", "pool,request,item,page", 3},
    TableInfo{"holders", &TableState::holders, "page,field", "pool,page,holders", 2},
    TableInfo{"free_pages", &TableState::free, "page,field", "pool,page", 2},
    TableInfo{"state_bases", &TableState::bases, "request,field", "request,base", 1},
};
inline constexpr std::string_view kTablesGroup = "tables";

}  // namespace dsv4

/// An engine with a fault in it. What a fault may do is oracle/edited_engine.hpp.
#pragma once

#include "oracle/edited_engine.hpp"

namespace dsv4::oracle::faults {

class FaultyEngine : public EditedEngine {
 public:
  using EditedEngine::EditedEngine;
};

}  // namespace dsv4::oracle::faults

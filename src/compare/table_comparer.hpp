/// Compares block tables, reference counts, free lists and state bases after a step: a page that changed hands
/// wrongly is named at the event that did it, before anybody reads it.
#pragma once

#include "compare/layer_comparer.hpp"

namespace dsv4::compare {

/// Appends one comparison for each table; skips them if one side has none.
void compare_tables(const LayerComparer::Context& context, StepComparison& out);

}  // namespace dsv4::compare

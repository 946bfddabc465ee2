/// SIGINT as a flag: the step in progress is finished, then drivers stop (exit 130 in src/cli).
#pragma once

namespace dsv4::oracle {

/// Installs the handler. A second SIGINT ends the process at once.
void catch_interrupts();
bool interrupted();

}  // namespace dsv4::oracle

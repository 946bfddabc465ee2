/// Exit codes of the program, and the one place that maps errors to them.
#pragma once

#include <exception>

namespace dsv4::cli {

enum ExitCode : int {
  kDone = 0,      ///< done; where something was compared, nothing differs
  kFailed = 1,    ///< a comparison or an expectation failed
  kUsage = 2,     ///< usage, scenario content, or a comparison that matched nothing
  kFile = 3,      ///< a file could not be read, written or trusted
  kSubject = 4,   ///< the subject could not run
  kInternal = 5,  ///< a broken invariant of our own
  kInterrupted = 130,
};

/// Prints the error in flight to stderr, one line, and returns its code.
int report_error(const std::exception_ptr& error);

/// The worst code of several runs: an interruption, else a failure, else nothing compared, else done.
int worse(int a, int b);

}  // namespace dsv4::cli

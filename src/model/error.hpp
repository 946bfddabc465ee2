/// The project's error types. One place (src/cli) maps them to exit codes.
#pragma once

#include <stdexcept>
#include <string>

namespace dsv4 {

/// Base of every error that a person can act on. `what()` is one complete message: it names the file,
/// line, key or tensor and the offending value.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong usage or wrong scenario content; exit 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A file that could not be read, written or trusted; exit 3.
class FileError : public Error {
 public:
  using Error::Error;
};

/// The subject cannot run: no device, no such mechanism, a CUDA error; exit 4.
class SubjectError : public Error {
 public:
  using Error::Error;
};

/// A broken invariant of our own; exit 5.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Checked in every build: throws InternalError with the message when `holds` is false.
inline void require(bool holds, const char* message) {
  if (!holds) throw InternalError(message);
}

}  // namespace dsv4

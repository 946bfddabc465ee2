#include "cli/exit_code.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <new>
#include <system_error>

#include "model/error.hpp"

namespace dsv4::cli {
namespace {

int print(const char* kind, const char* what, int code) {
  fmt::print(stderr, "dsv4-oracle: {}{}\n", kind, what);
  return code;
}

}  // namespace

int report_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return print("", e.what(), kUsage);
  } catch (const FileError& e) {
    return print("", e.what(), kFile);
  } catch (const SubjectError& e) {
    return print("", e.what(), kSubject);
  } catch (const std::system_error& e) {  // fmt's: output that could not be written
    return print("", e.what(), kFile);
  } catch (const std::bad_alloc&) {
    return print("", "out of memory", kSubject);
  } catch (const std::exception& e) {
    return print("internal error: ", e.what(), kInternal);
  } catch (...) {
    return print("internal error: ", "unknown", kInternal);
  }
}

int worse(int a, int b) {
  for (const int code : {kInterrupted, kFailed, kUsage}) {
    if (a == code || b == code) return code;
  }
  return std::max(a, b);
}

}  // namespace dsv4::cli

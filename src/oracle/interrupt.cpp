#include "oracle/interrupt.hpp"

#include <csignal>

namespace dsv4::oracle {
namespace {

volatile std::sig_atomic_t flag = 0;

void on_interrupt(int) {
  flag = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
}

bool interrupted() {
  return flag != 0;
}

}  // namespace dsv4::oracle

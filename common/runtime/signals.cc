#include "common/runtime/signals.h"

#include <csignal>

namespace kvring {
namespace {

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void BlockSignals() {
  const sigset_t set = Handled();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int WaitForSignal() {
  const sigset_t set = Handled();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
}

int WaitForSignal(Duration wait) {
  const sigset_t set = Handled();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
  const timespec most{.tv_sec = seconds.count(), .tv_nsec = (wait - seconds).count()};
  const int signal = sigtimedwait(&set, nullptr, &most);
  return signal > 0 ? signal : 0;
}

}  // namespace kvring

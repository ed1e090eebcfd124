#include "common/runtime/child_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace kvring {
namespace {

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void Exec(char* const* arguments, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) execv(arguments[0], arguments);
  _exit(127);
}

std::string Describe(int status) {
  return WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                             : absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, absl::StrCat(arguments[0], ": cannot be started"));
  if (child == 0) Exec(pointers.data(), parent);
  return child;
}

bool ReapChild(pid_t child, std::string& description) {
  int status = 0;
  if (waitpid(child, &status, WNOHANG) != child) return false;
  description = Describe(status);
  return true;
}

void StopChild(pid_t child, int wait_ms) {
  kill(child, SIGTERM);
  std::string description;
  for (int waited = 0; waited < wait_ms; waited += 10) {
    if (ReapChild(child, description)) return;
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
}

std::string SelfPath() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return size <= 0 ? std::string() : std::string(path, static_cast<size_t>(size));
}

}  // namespace kvring

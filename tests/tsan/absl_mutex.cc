// Makes Abseil's locks visible to the thread sanitizer. Debian's libabsl is not instrumented, so the
// sanitizer would see no order between threads that meet in an absl::Mutex. A thread-sanitizer build links
// this with `--wrap` for each function below: calls from our code come here, tell the sanitizer, and go on to
// the real function. Between pre_lock and post_lock the sanitizer looks away, which covers conditions that
// Abseil evaluates inside. Not part of any other build.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);

#define REAL(name) __real_##name
#define WRAP(name) __wrap_##name

#define MUTEX_LOCK _ZN4absl7debian35Mutex4LockEv
#define MUTEX_UNLOCK _ZN4absl7debian35Mutex6UnlockEv
#define MUTEX_TRYLOCK _ZN4absl7debian35Mutex7TryLockEv
#define MUTEX_AWAIT _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
#define MUTEX_AWAIT_TIMEOUT _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
#define MUTEX_LOCK_WHEN _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE
#define CONDVAR_WAIT _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE
#define CONDVAR_WAIT_TIMEOUT _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
#define NOTIFY _ZN4absl7debian312Notification6NotifyEv
#define NOTIFICATION_WAIT _ZNK4absl7debian312Notification19WaitForNotificationEv
#define NOTIFICATION_WAIT_TIMEOUT \
  _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE
#define EXPAND(macro, name) macro(name)

void EXPAND(REAL, MUTEX_LOCK)(absl::Mutex* mutex);
void EXPAND(REAL, MUTEX_UNLOCK)(absl::Mutex* mutex);
bool EXPAND(REAL, MUTEX_TRYLOCK)(absl::Mutex* mutex);
void EXPAND(REAL, MUTEX_AWAIT)(absl::Mutex* mutex, const absl::Condition& condition);
bool EXPAND(REAL, MUTEX_AWAIT_TIMEOUT)(absl::Mutex* mutex, const absl::Condition& condition,
                                       absl::Duration timeout);
void EXPAND(REAL, MUTEX_LOCK_WHEN)(absl::Mutex* mutex, const absl::Condition& condition);
void EXPAND(REAL, CONDVAR_WAIT)(absl::CondVar* condvar, absl::Mutex* mutex);
bool EXPAND(REAL, CONDVAR_WAIT_TIMEOUT)(absl::CondVar* condvar, absl::Mutex* mutex, absl::Duration timeout);
void EXPAND(REAL, NOTIFY)(absl::Notification* notification);
void EXPAND(REAL, NOTIFICATION_WAIT)(const absl::Notification* notification);
bool EXPAND(REAL, NOTIFICATION_WAIT_TIMEOUT)(const absl::Notification* notification, absl::Duration timeout);

void EXPAND(WRAP, MUTEX_LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, 0);
  EXPAND(REAL, MUTEX_LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void EXPAND(WRAP, MUTEX_UNLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  EXPAND(REAL, MUTEX_UNLOCK)(mutex);
  __tsan_mutex_post_unlock(mutex, 0);
}

bool EXPAND(WRAP, MUTEX_TRYLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  const bool locked = EXPAND(REAL, MUTEX_TRYLOCK)(mutex);
  __tsan_mutex_post_lock(mutex, locked ? __tsan_mutex_try_lock : __tsan_mutex_try_lock_failed, 0);
  return locked;
}

// A wait gives the lock up and takes it again.
static void BeginWait(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
}
static void EndWait(absl::Mutex* mutex) { __tsan_mutex_post_lock(mutex, 0, 0); }

void EXPAND(WRAP, MUTEX_AWAIT)(absl::Mutex* mutex, const absl::Condition& condition) {
  BeginWait(mutex);
  EXPAND(REAL, MUTEX_AWAIT)(mutex, condition);
  EndWait(mutex);
}

bool EXPAND(WRAP, MUTEX_AWAIT_TIMEOUT)(absl::Mutex* mutex, const absl::Condition& condition,
                                       absl::Duration timeout) {
  BeginWait(mutex);
  const bool held = EXPAND(REAL, MUTEX_AWAIT_TIMEOUT)(mutex, condition, timeout);
  EndWait(mutex);
  return held;
}

void EXPAND(WRAP, MUTEX_LOCK_WHEN)(absl::Mutex* mutex, const absl::Condition& condition) {
  __tsan_mutex_pre_lock(mutex, 0);
  EXPAND(REAL, MUTEX_LOCK_WHEN)(mutex, condition);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void EXPAND(WRAP, CONDVAR_WAIT)(absl::CondVar* condvar, absl::Mutex* mutex) {
  BeginWait(mutex);
  EXPAND(REAL, CONDVAR_WAIT)(condvar, mutex);
  EndWait(mutex);
}

bool EXPAND(WRAP, CONDVAR_WAIT_TIMEOUT)(absl::CondVar* condvar, absl::Mutex* mutex, absl::Duration timeout) {
  BeginWait(mutex);
  const bool timed_out = EXPAND(REAL, CONDVAR_WAIT_TIMEOUT)(condvar, mutex, timeout);
  EndWait(mutex);
  return timed_out;
}

void EXPAND(WRAP, NOTIFY)(absl::Notification* notification) {
  __tsan_release(notification);
  EXPAND(REAL, NOTIFY)(notification);
}

void EXPAND(WRAP, NOTIFICATION_WAIT)(const absl::Notification* notification) {
  EXPAND(REAL, NOTIFICATION_WAIT)(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}

bool EXPAND(WRAP, NOTIFICATION_WAIT_TIMEOUT)(const absl::Notification* notification, absl::Duration timeout) {
  const bool notified = EXPAND(REAL, NOTIFICATION_WAIT_TIMEOUT)(notification, timeout);
  if (notified) __tsan_acquire(const_cast<absl::Notification*>(notification));
  return notified;
}

}  // extern "C"

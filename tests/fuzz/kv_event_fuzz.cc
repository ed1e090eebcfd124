// Anything as a message of a KV event publisher: it is read or refused, and what is read is in proportion to
// it; the translator takes whatever was read.
#include "router/events/kv_event_translator.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto batch = kvring::router::DecodeKvEvents({reinterpret_cast<const char*>(data), size});
  if (!batch.ok()) return 0;
  static kvring::router::KvEventTranslator translator(1000);
  size_t read = 0;
  for (const auto& event : batch->events) read += event.hashes.size() + event.tokens.size();
  const auto translated = translator.Translate(*batch, "m");
  Require(read <= size, "no more hashes and tokens than bytes");
  Require(translated.events.size() <= size, "no more events than bytes");
#ifdef KVRING_FUZZ_CANARY
  Require(batch->events.size() != 2, "wrong: the seeds hold three events, an edit away from two");
#endif
  return 0;
}

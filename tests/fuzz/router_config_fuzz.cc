// Anything as the router's configuration file: it is read or refused with the line that is wrong; what was
// read is judged without a fault.
#include "deploy/cli/router_config.h"
#include "deploy/cli/router_settings.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      kvring::cli::ParseRouterConfig({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!config.ok()) {
    Require(config.status().message().substr(0, 10) == "fuzz.yaml:", "an error names file and line");
    return 0;
  }
  const absl::Status judged = kvring::cli::CheckRouterConfig(*config);
  Require(judged.ok() || !judged.message().empty(), "a refusal says why");
#ifdef KVRING_FUZZ_CANARY
  Require(config->backends_size() != 3, "wrong: a seed has two backends, a copied line away from three");
#endif
  return 0;
}

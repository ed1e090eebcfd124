#include "common/canonical_prompt.h"

namespace kvring {

void CanonicalPrompt::AddTools(std::string_view raw_json) {
  bytes_.append(raw_json);
  bytes_.push_back(kEndOfRecord);
}

void CanonicalPrompt::BeginMessage(std::string_view role) {
  bytes_.append(role);
  bytes_.push_back(kEndOfRole);
}

void CanonicalPrompt::AddOpaque(std::string_view raw_json) {
  bytes_.push_back(kOpaque);
  bytes_.append(raw_json);
}

}  // namespace kvring

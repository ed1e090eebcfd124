// A chat as canonical bytes. Test only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/canonical_prompt.h"

namespace kvring::router {

using Messages = std::vector<std::pair<std::string, std::string>>;  // role, text

inline std::string ChatPrompt(const Messages& messages, std::string_view tools = "") {
  CanonicalPrompt prompt;
  if (!tools.empty()) prompt.AddTools(tools);
  for (const auto& [role, text] : messages) {
    prompt.BeginMessage(role);
    prompt.AddText(text);
    prompt.EndMessage();
  }
  return prompt.Take();
}

}  // namespace kvring::router

// ClassifyChange: what kind of text changed, from the two versions of it and the text around. Pure.
#pragma once

#include <string_view>

#include "router/ledger/divergence.h"

namespace kvring::router {

struct ChangedText {
  DivergenceClass cause = DivergenceClass::kOther;
  ByteSpan earlier;  // widened to whole values
  ByteSpan now;
};

/// `earlier` of A was replaced by `now` of B; both begin where A and B first differ. `part` of B it is in.
ChangedText ClassifyChange(std::string_view a, ByteSpan earlier, std::string_view b, ByteSpan now,
                           PromptPart part);

}  // namespace kvring::router

// StructureChange: changes that are told by the build of a prompt rather than by one value in it: tools, JSON
// written otherwise, documents in another order, a history that was cut, a generation header that is not
// rendered again. Each function answers for one kind, nullopt where it is not that. `parting` is where A and
// B first differ. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "router/ledger/divergence.h"

namespace kvring::router {

struct StructureChange {
  DivergenceClass cause = DivergenceClass::kOther;
  ByteSpan earlier;
  ByteSpan now;
  size_t same_bytes = 0;  // of B's span: the same content as in A, written or placed otherwise
};

/// A ends in a header ("<assistant>\n<think>\n") that B has not there, but at its own end.
std::optional<StructureChange> HeaderChange(std::string_view a, std::string_view b, size_t parting);

/// Tools that came, went or moved; or the same tools, written otherwise.
std::optional<StructureChange> ToolsChange(std::string_view a, std::string_view b, size_t parting);

/// A JSON value in a message: the same with another order of keys or elements, or white space.
std::optional<StructureChange> JsonChange(std::string_view a, std::string_view b, size_t parting);

/// Messages of A are gone, the later ones of A follow; a message may stand in their place (a summary).
std::optional<StructureChange> HistoryCut(std::string_view a, std::string_view b, size_t parting);

/// The lines of the message in another order; numbers at their start do not count.
std::optional<StructureChange> DocumentsMoved(std::string_view a, std::string_view b, size_t parting);

}  // namespace kvring::router

// What `kvring audit` says, as JSON, as text and as a page. The text and the page show what the JSON has.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "router/ledger/reuse_audit.h"

namespace kvring::cli {

/// What was read.
struct AuditInput {
  int64_t files = 0;
  int64_t requests = 0;
  int64_t skipped = 0;             // records without a prompt, or of failed requests
  int64_t bad = 0;                 // records that cannot be read
  std::vector<std::string> named;  // the first of them, "file:line: why"
};

boost::json::object AuditJson(const AuditInput& input, const router::ReuseAudit& audit);
std::string AuditText(const boost::json::object& report);
/// One HTML file that needs nothing else.
std::string AuditPage(const boost::json::object& report);

}  // namespace kvring::cli

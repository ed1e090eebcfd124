#include "router/ledger/reuse_audit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kvring::router {
namespace {

void AddTo(ReuseAudit::Sums& sums, const std::string& name, const ReuseLevels& levels) {
  const bool kept = sums.size() < ReuseAudit::kMaxGroups || sums.contains(name);
  sums[kept ? name : "(others)"].Add(levels);
}

std::string FamilyOf(std::string_view prompt, const std::optional<Divergence>& divergence) {
  size_t end = LeadingEnd(prompt);
  if (divergence) end = std::min(end, divergence->now.begin);
  return absl::StrCat(absl::Hex(HashName(prompt.substr(0, end)), absl::kZeroPad16));
}

}  // namespace

ReuseAudit::ReuseAudit(const AuditOptions& options)
    : options_(options),
      memory_(options.prompt_bytes),
      any_key_(options.history_blocks / 2),
      same_key_(options.history_blocks / 2) {}

PromptSize ReuseAudit::SizeOf(const LoggedRequest& request) {
  const size_t bytes = request.prompt.size();
  if (request.token_ids) return {bytes, static_cast<int64_t>(bytes / sizeof(TokenId))};
  Spoken& spoken = spoken_[spoken_.size() < kMaxGroups ? request.model : "(others)"];
  if (request.prompt_tokens) {
    spoken.bytes += static_cast<int64_t>(bytes);
    spoken.tokens += *request.prompt_tokens;
    return {bytes, *request.prompt_tokens};
  }
  ++estimated_;
  const double bytes_per_token = spoken.tokens == 0
                                     ? kDefaultBytesPerToken
                                     : static_cast<double>(spoken.bytes) / static_cast<double>(spoken.tokens);
  return {bytes, static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / bytes_per_token))};
}

// Histories know whole blocks; the memory of texts adds the bytes behind the last one.
MatchedBytes ReuseAudit::SeenOf(const LoggedRequest& request, size_t equal_bytes) {
  MatchedBytes matched;
  matched.any_key = any_key_.SeenThenAdd(ChainRoot({}), request.prompt);
  matched.same_key = same_key_.SeenThenAdd(
      ChainRoot({.model = request.model, .adapter = "", .salt = request.salt}), request.prompt);
  const bool to_the_end = matched.same_key / PrefixHistory::kBlockBytes ==
                          std::max(matched.any_key, equal_bytes) / PrefixHistory::kBlockBytes;
  matched.any_key = std::max(matched.any_key, equal_bytes);
  if (to_the_end) matched.same_key = matched.any_key;
  return matched;
}

ReuseAudit::Verdict ReuseAudit::Add(LoggedRequest request) {
  Verdict verdict;
  const PromptSize size = SizeOf(request);
  PromptMemory::Match match = memory_.Find(request.prompt);
  MatchedBytes matched = SeenOf(request, match.equal_bytes);
  if (match.divergence && match.divergence->what_if_bytes > matched.any_key) {
    matched.if_moved = match.divergence->what_if_bytes;
    verdict.divergence = std::move(match.divergence);
  }
  verdict.levels = LevelsOf(options_.rule, size, matched, request.cached_tokens);
  Group(request, verdict);
  if (verdict.divergence) Tally(request, size, verdict);
  memory_.Add(std::move(request.prompt));
  return verdict;
}

void ReuseAudit::Group(const LoggedRequest& request, const Verdict& verdict) {
  const ReuseLevels& levels = verdict.levels;
  total_.Add(levels);
  AddTo(by_model_, request.model, levels);
  if (!request.tenant.empty()) AddTo(by_tenant_, request.tenant, levels);
  if (!request.hour.empty()) AddTo(by_hour_, request.hour, levels);
  AddTo(by_family_, FamilyOf(request.prompt, verdict.divergence), levels);
}

void ReuseAudit::Tally(const LoggedRequest& request, const PromptSize& size, const Verdict& verdict) {
  constexpr size_t kMaxTextBytes = 200;
  const ReuseLevels& levels = verdict.levels;
  const Divergence& divergence = *verdict.divergence;
  const int64_t possible = ReusableTokens(options_.rule, levels.if_moved, levels.prompt);
  DivergencePlace& place =
      tally_.Add(divergence, request.prompt, request.where, std::max<int64_t>(0, possible - levels.ceiling));
  place.at_token = size.TokensAt(divergence.offset);
  if (options_.keep_text)
    place.now_text =
        request.prompt.substr(divergence.now.begin, std::min(divergence.now.length(), kMaxTextBytes));
}

double ReuseAudit::WhatIfRate(const DivergencePlace& finding) const {
  return ReuseSums::Share(total_.ceiling + finding.lost_tokens, total_.prompt);
}

}  // namespace kvring::router

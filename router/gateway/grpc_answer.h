// GrpcAnswer: one attempt's events from a replica behind gRPC as an HTTP answer, told to an AnswerSink. Not
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/openai/response_writer.h"
#include "kvring/v1/inference.pb.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

class GrpcAnswer {
 public:
  /// The request's body is read where the head does not tell what the answer's shape depends on (usage chunk,
  /// log probabilities).
  GrpcAnswer(const UpstreamRequest& request, const std::string& replica_model);

  /// Tells the sink. True: that was the last event. `ended` may be set by the sink's calls (Cancel): nothing
  /// is told after.
  bool Take(const v1::GenerateResponse& event, AnswerSink& sink, const bool& ended);

 private:
  void TakeDelta(const v1::Delta& delta, AnswerSink& sink, const bool& ended);
  void TakeUsage(const v1::Usage& usage, AnswerSink& sink, const bool& ended);
  void TakeError(const v1::Error& error, AnswerSink& sink, const bool& ended);
  void StartStream(AnswerSink& sink);
  void Whole(int status, bool retry_later, std::string_view body, AnswerSink& sink, const bool& ended);

  const bool to_head_request_;  // the answer has no body
  std::optional<openai::StreamWriter> stream_;
  std::optional<openai::AnswerWriter> whole_;
  bool head_told_ = false;
  std::string generated_;  // of choice 0, continuing the canonical prompt
  std::string buffer_;
};

/// What the core is told of an engine's own reports.
AdmittedReport ReportOf(const v1::Admitted& admitted);
UsageReport ReportOf(const v1::Usage& usage, std::string_view generated);
openai::ApiError ErrorOf(const v1::Error& error);
/// Whose an error is: 429 and 503 mean busy, other 5xx that the replica failed, the rest is the request's.
OutcomeClass OutcomeOfError(int http_status);
/// Canonical bytes between a prompt and its answer's text.
std::string AnswerPrefix(bool chat);

}  // namespace kvring::router

// HttpSink: a request's events as an OpenAI answer over HTTP: SSE chunks or one object. The status line goes
// out with the first token, so an error before it is a plain JSON error; after it, an in-band error event.
#pragma once

#include <optional>

#include "common/net/http_server.h"
#include "common/openai/response_writer.h"
#include "replica/server/generation.h"

namespace kvring::replica {

class HttpSink : public GenerationSink {
 public:
  struct Answer {
    openai::AnswerIdentity identity;
    bool stream = false;
    bool include_usage = false;
    bool logprobs = false;
  };

  HttpSink(Answer answer, net::ResponseWriter writer);

  void OnAdmitted(const AdmittedInfo&) override {}
  void OnDelta(const GenerationDelta& delta) override;
  void OnDone(const DoneInfo& info) override;
  void OnError(const openai::ApiError& error) override;

  net::ResponseWriter& writer() { return writer_; }

 private:
  void Send();

  net::ResponseWriter writer_;
  std::optional<openai::StreamWriter> stream_;
  std::optional<openai::AnswerWriter> whole_;
  std::string buffer_;
  bool started_ = false;
};

}  // namespace kvring::replica

#include "replica/server/http_sink.h"

namespace kvring::replica {

HttpSink::HttpSink(Answer answer, net::ResponseWriter writer) : writer_(std::move(writer)) {
  if (answer.stream) {
    stream_.emplace(std::move(answer.identity), answer.include_usage, answer.logprobs);
  } else {
    whole_.emplace(std::move(answer.identity), answer.logprobs);
  }
}

void HttpSink::Send() {
  if (!started_) {
    writer_.Start(
        200,
        {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
    started_ = true;
  }
  writer_.Write(buffer_);
  buffer_.clear();
}

void HttpSink::OnDelta(const GenerationDelta& delta) {
  if (whole_.has_value()) return whole_->Delta(delta.choice);
  stream_->Delta(buffer_, delta.choice);
  Send();
}

void HttpSink::OnDone(const DoneInfo& info) {
  if (whole_.has_value()) return writer_.Reply(net::JsonResponse(200, whole_->Finish(info.usage)));
  stream_->Finish(buffer_, info.usage);
  Send();
  writer_.Finish();
}

void HttpSink::OnError(const openai::ApiError& error) {
  if (!started_) {
    net::HttpResponse response = net::JsonResponse(error.http_status, error.ToJson());
    if (error.http_status == 429 || error.http_status == 503)
      response.headers.emplace_back("Retry-After", "1");
    return writer_.Reply(response);
  }
  openai::StreamWriter::Error(buffer_, error);
  Send();
  writer_.Finish();
}

}  // namespace kvring::replica

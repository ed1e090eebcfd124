// TokenEstimator: bytes of canonical prompt per token, per model, learnt from usage: two running sums,
// halved every million tokens so that it follows a change of language. 4 bytes until something is known.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kvring::router {

class TokenEstimator {
 public:
  static constexpr double kDefaultBytesPerToken = 4;

  void Learn(const std::string& model, int64_t prompt_bytes, int64_t prompt_tokens);
  double BytesPerToken(const std::string& model) const;

 private:
  struct Sums {
    double bytes = 0;
    double tokens = 0;
  };
  std::map<std::string, Sums> sums_;  // by pool, so bounded by what replicas declare
};

}  // namespace kvring::router

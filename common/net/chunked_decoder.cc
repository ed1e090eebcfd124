#include "common/hex_digit.h"
#include "common/net/http_parser.h"

namespace kvring::net {
namespace {

constexpr uint32_t kMaxExtensionBytes = 256;
constexpr uint32_t kMaxTrailerBytes = 8 << 10;
constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 56;

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

}  // namespace

ChunkedDecoder::Step ChunkedDecoder::Next(std::string_view& input, std::string_view& data) {
  while (!input.empty() || state_ == State::kDone || state_ == State::kFault) {
    if (state_ == State::kDone) return Step::kDone;
    if (state_ == State::kFault) return Step::kFault;
    if (state_ == State::kData) {
      data = input.substr(0, left_);
      input.remove_prefix(data.size());
      left_ -= data.size();
      if (left_ == 0) state_ = State::kDataCr;
      return Step::kData;
    }
    if (!Control(input.front())) {
      state_ = State::kFault;
    } else {
      input.remove_prefix(1);
    }
  }
  return Step::kNeedMore;
}

// One byte outside the data. False: the framing is broken.
bool ChunkedDecoder::Control(char byte) {
  const auto expect = [&](char wanted, State next) {
    state_ = next;
    return byte == wanted;
  };
  switch (state_) {
    case State::kSizeStart:
    case State::kSize:
    case State::kExtension:
      return SizeByte(byte);
    case State::kSizeLf:
      side_bytes_ = 0;
      return expect('\n', left_ == 0 ? State::kTrailerStart : State::kData);
    case State::kDataCr:
      return expect('\r', State::kDataLf);
    case State::kDataLf:
      return expect('\n', State::kSizeStart);
    case State::kTrailerLf:
      return expect('\n', State::kTrailerStart);
    case State::kEndLf:
      return expect('\n', State::kDone);
    default:
      return TrailerByte(byte);
  }
}

bool ChunkedDecoder::SizeByte(char byte) {
  if (state_ == State::kExtension) {
    if (byte == '\r') state_ = State::kSizeLf;
    return byte == '\r' || (!IsControl(byte) && ++side_bytes_ <= kMaxExtensionBytes);
  }
  if (const int digit = HexDigit(byte); digit >= 0) {
    left_ = (state_ == State::kSizeStart ? 0 : left_ * 16) + static_cast<uint64_t>(digit);
    state_ = State::kSize;
    return left_ < kMaxChunkBytes && ++side_bytes_ <= 16;
  }
  if (state_ == State::kSizeStart) return false;
  side_bytes_ = 0;
  state_ = byte == '\r' ? State::kSizeLf : State::kExtension;
  return byte == '\r' || byte == ';';
}

bool ChunkedDecoder::TrailerByte(char byte) {
  if (byte == '\r') {
    state_ = state_ == State::kTrailerStart ? State::kEndLf : State::kTrailerLf;
    return true;
  }
  state_ = State::kTrailer;
  return !IsControl(byte) && ++side_bytes_ <= kMaxTrailerBytes;
}

}  // namespace kvring::net

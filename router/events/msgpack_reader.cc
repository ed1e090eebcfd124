#include "router/events/msgpack_reader.h"

namespace kvring::router {

// First bytes, from the specification:
//   00-7f positive integer   c0 nil   c2 c3 bool   c4 c5 c6 bytes     ca cb float     cc-cf unsigned
//   80-8f map   90-9f array  d0-d3 signed          d4-d8 c7-c9 extension              d9 da db text
//   a0-bf text  e0-ff negative integer             dc dd array        de df map
MsgpackReader::Kind MsgpackReader::Peek() const {
  if (failed_ || at_ >= text_.size()) return Kind::kEnd;
  const auto tag = static_cast<uint8_t>(text_[at_]);
  if (tag < 0x80 || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3)) return Kind::kInteger;
  if (tag < 0x90 || tag == 0xde || tag == 0xdf) return Kind::kMap;
  if (tag < 0xa0 || tag == 0xdc || tag == 0xdd) return Kind::kArray;
  if (tag < 0xc0 || (tag >= 0xd9 && tag <= 0xdb)) return Kind::kText;
  if (tag == 0xc0) return Kind::kNil;
  if (tag == 0xc2 || tag == 0xc3) return Kind::kBool;
  if (tag >= 0xc4 && tag <= 0xc6) return Kind::kBytes;
  if (tag == 0xca || tag == 0xcb) return Kind::kFloat;
  return Kind::kExtension;  // c1, which is never used, fails when it is skipped
}

uint64_t MsgpackReader::BigEndian(size_t bytes) {
  if (!Has(bytes)) {
    Fail();
    return 0;
  }
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | Byte();
  return value;
}

bool MsgpackReader::TakeNil() {
  if (Peek() != Kind::kNil) return false;
  ++at_;
  return true;
}

uint64_t MsgpackReader::TakeInteger() {
  if (Peek() != Kind::kInteger) {
    Fail();
    return 0;
  }
  const uint8_t tag = Byte();
  if (tag < 0x80) return tag;
  if (tag >= 0xe0) return static_cast<uint64_t>(int64_t{static_cast<int8_t>(tag)});
  const size_t bytes = size_t{1} << (tag & 3);
  const uint64_t value = BigEndian(bytes);
  if (tag < 0xd0 || bytes == 8) return value;
  const int shift = 64 - 8 * static_cast<int>(bytes);  // signed: its highest bit goes on to the left
  return static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
}

// Of a value whose short form has its length in `mask` of the tag, and whose long forms begin at `first_long`
// with `bytes` bytes of length, doubling.
uint64_t MsgpackReader::TakeLength(uint8_t tag, uint8_t fixed, uint8_t mask, uint8_t first_long) {
  if ((tag & static_cast<uint8_t>(~mask)) == fixed) return tag & mask;
  const size_t smallest = first_long == 0xdc || first_long == 0xde ? 2 : 1;
  return BigEndian(smallest << (tag - first_long));
}

std::string_view MsgpackReader::TakeString() {
  const Kind kind = Peek();
  if (kind != Kind::kText && kind != Kind::kBytes) {
    Fail();
    return {};
  }
  const uint8_t tag = Byte();
  const uint64_t size = kind == Kind::kText ? TakeLength(tag, 0xa0, 0x1f, 0xd9) : TakeLength(tag, 0, 0, 0xc4);
  if (failed_ || !Has(size)) {
    Fail();
    return {};
  }
  const std::string_view text = text_.substr(at_, size);
  at_ += size;
  return text;
}

size_t MsgpackReader::TakeArray() {
  if (Peek() != Kind::kArray) {
    Fail();
    return 0;
  }
  const uint64_t size = TakeLength(Byte(), 0x90, 0x0f, 0xdc);
  if (!Has(size)) Fail();  // each element takes a byte at least
  return failed_ ? 0 : size;
}

size_t MsgpackReader::TakeMap() {
  if (Peek() != Kind::kMap) {
    Fail();
    return 0;
  }
  const uint64_t size = TakeLength(Byte(), 0x80, 0x0f, 0xde);
  if (!Has(2 * size)) Fail();
  return failed_ ? 0 : size;
}

void MsgpackReader::Skip() { SkipAtDepth(0); }

void MsgpackReader::SkipAtDepth(int depth) {
  if (depth > kMaxDepth) return Fail();
  const auto skip_bytes = [this](uint64_t bytes) { Has(bytes) ? void(at_ += bytes) : Fail(); };
  switch (Peek()) {
    case Kind::kNil:
    case Kind::kBool:
      return skip_bytes(1);
    case Kind::kInteger:
      TakeInteger();
      return;
    case Kind::kFloat:
      return skip_bytes(static_cast<uint8_t>(text_[at_]) == 0xca ? 5 : 9);
    case Kind::kText:
    case Kind::kBytes:
      TakeString();
      return;
    case Kind::kArray:
      for (size_t left = TakeArray(); left > 0 && !failed_; --left) SkipAtDepth(depth + 1);
      return;
    case Kind::kMap:
      for (size_t left = 2 * TakeMap(); left > 0 && !failed_; --left) SkipAtDepth(depth + 1);
      return;
    case Kind::kExtension: {
      const uint8_t tag = Byte();
      if (tag >= 0xd4 && tag <= 0xd8) return skip_bytes((uint64_t{1} << (tag - 0xd4)) + 1);
      if (tag < 0xc7 || tag > 0xc9) return Fail();
      const uint64_t size = BigEndian(size_t{1} << (tag - 0xc7));
      return failed_ ? void() : skip_bytes(size + 1);
    }
    case Kind::kEnd:
      return Fail();
  }
}

}  // namespace kvring::router

#include "common/net/decompressor.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

namespace kvring::net {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// All members; what was read before the damage, with a mark, when it is damaged.
std::string ReadAll(Decompressor& decompressor) {
  std::string out;
  for (auto step = Decompressor::Step::kMore;
       step != Decompressor::Step::kEnd || decompressor.bytes_left() > 0;) {
    const size_t before = out.size();
    step = decompressor.Read(out);
    EXPECT_LE(out.size() - before, Decompressor::kPieceBytes);
    if (step == Decompressor::Step::kBroken) return out + "<broken>";
  }
  return out;
}
std::string Gunzip(const std::string& bytes) { return ReadAll(*MakeGzipDecompressor(bytes)); }
std::string Unzstd(const std::string& bytes) { return ReadAll(*MakeZstdDecompressor(bytes, 23)); }

// The last input byte is taken long before the last output comes.
TEST(Decompressor, LongRun_ComesWholeInPieces) {
  const std::string run(3'000'001, 'x');
  EXPECT_EQ(Gunzip(Gzip(run)), run);
  EXPECT_EQ(Unzstd(Zstd(run)), run);
  const std::string exact(Decompressor::kPieceBytes, 'y');
  EXPECT_EQ(Gunzip(Gzip(exact)), exact);
  EXPECT_EQ(Unzstd(Zstd(exact)), exact);
}

TEST(Decompressor, MembersAfterEachOther_AreOneText) {
  EXPECT_EQ(Gunzip(Gzip("one ") + Gzip("") + Gzip("two")), "one two");
  EXPECT_EQ(Unzstd(Zstd("one ") + Zstd("") + Zstd("two")), "one two");
}

TEST(Decompressor, CutOrDamaged_IsBroken) {
  const std::string text = "some text that is some text";
  for (const std::string& coded : {Gzip(text), Zstd(text)}) {
    const bool gzip = coded.starts_with("\x1f\x8b");
    for (size_t n = 0; n < coded.size(); ++n) {
      const std::string cut = coded.substr(0, n);
      EXPECT_TRUE((gzip ? Gunzip(cut) : Unzstd(cut)).ends_with("<broken>")) << gzip << " " << n;
    }
    EXPECT_TRUE((gzip ? Gunzip(coded + "!") : Unzstd(coded + "!")).ends_with("<broken>"));
  }
}

TEST(Decompressor, ZstdWindowAboveTheLimit_IsBroken) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 24);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  const std::string text(size_t{17} << 20, 'z');
  std::string coded(ZSTD_compressBound(text.size()), '\0');
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  ZSTD_outBuffer output{coded.data(), coded.size(), 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &output, &input, ZSTD_e_end), 0U);
  ZSTD_freeCCtx(context);
  coded.resize(output.pos);
  EXPECT_EQ(ReadAll(*MakeZstdDecompressor(coded, 23)), "<broken>");
  EXPECT_EQ(ReadAll(*MakeZstdDecompressor(coded, 24)), text);
}

}  // namespace
}  // namespace kvring::net

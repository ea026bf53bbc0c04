#include "serve/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::serve::http {
namespace {

// A connection brings `text` in pieces of `piece` bytes; the buffer keeps what the parser leaves, as the session's
// does.
Parser::value_type read_in_pieces(const std::string& text, size_t piece) {
  std::optional<Parser> parser;
  make_parser(parser, {});
  parser->eager(true);
  boost::beast::error_code error;
  size_t used = 0;
  for (size_t end = 0; end < text.size() && !parser->is_done();) {
    end = std::min(end + piece, text.size());
    error = {};
    used += parser->put(boost::asio::const_buffer(text.data() + used, end - used), error);
    if (error && error != boost::beast::http::error::need_more) break;
  }
  EXPECT_TRUE(parser->is_done()) << "pieces of " << piece << ": " << error.message();
  EXPECT_EQ(used, text.size());
  return parser->release();
}

TEST(RequestReader, ReadsChunksInPiecesOfAnySize) {
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string end : {"0\r\n\r\n", "000;last=yes\r\n\r\n", "0\r\nTrailer: 1\r\n\r\n"})
    for (size_t piece = 1; piece < 12; ++piece) {
      EXPECT_EQ(read_in_pieces(head + end, piece).body(), "");
      EXPECT_EQ(read_in_pieces(head + "4\r\nOnce\r\n8;x\r\n upon a \r\n" + end, piece).body(), "Once upon a ");
    }
}

}  // namespace
}  // namespace weft::serve::http

#include "serve/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft::serve::http {
namespace {

// Takes as much of `text` as there is room for.
size_t bring(RequestReader& reader, std::string_view text) {
  const boost::asio::mutable_buffer room = reader.room();
  const size_t size = std::min(room.size(), text.size());
  if (size > 0) std::memcpy(room.data(), text.data(), size);
  reader.add(size);
  return size;
}

// A connection brings `text` in pieces of `piece` bytes.
HttpRequest read_in_pieces(const std::string& text, size_t piece) {
  const Limits limits;
  RequestReader reader(limits, false);
  bool head = false, whole = false;
  for (size_t at = 0; at < text.size() && !whole;) {
    at += bring(reader, std::string_view(text).substr(at, piece));
    head = head || reader.read_head();
    whole = head && reader.read_body();
  }
  EXPECT_TRUE(whole) << "pieces of " << piece;
  return whole ? reader.take() : HttpRequest{};
}

TEST(RequestReader, ReadsChunksInPiecesOfAnySize) {
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string end : {"0\r\n\r\n", "000;last=yes\r\n\r\n", "0\r\nTrailer: 1\r\n\r\n"})
    for (size_t piece = 1; piece < 12; ++piece) {
      EXPECT_EQ(read_in_pieces(head + end, piece).body, "");
      EXPECT_EQ(read_in_pieces(head + "4\r\nOnce\r\n8;x\r\n upon a \r\n" + end, piece).body, "Once upon a ");
    }
}

TEST(RequestReader, SkipsEmptyLinesBeforeARequestInPiecesOfAnySize) {
  for (size_t piece = 1; piece < 12; ++piece) {
    const HttpRequest request = read_in_pieces("\r\n\r\nGET http://Here/a?b HTTP/1.0\r\nA: 1\r\na: 2\r\n\r\n", piece);
    EXPECT_EQ(request.path, "/a");
    EXPECT_EQ(request.header("host"), "Here");
    EXPECT_EQ(request.header("a"), "1, 2");
    EXPECT_TRUE(request.http_1_0);
  }
}

// Nobody has looked at them when they come.
TEST(RequestReader, TakesNoHeadersFromBehindABody) {
  const HttpRequest request = read_in_pieces(
      "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer other\r\n"
      "Host: other\r\n\r\n",
      1000);
  EXPECT_EQ(request.header("authorization"), "");
  EXPECT_EQ(request.header("host"), "localhost");
}

TEST(RequestReader, HoldsNoMoreThanItsLimits) {
  Limits limits;
  limits.header_bytes = 2000;
  limits.body_bytes = 10000;
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\n";
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += "a:\r\n";
  for (const std::string& endless :
       {head + lines, head + "X: " + lines, head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(16000, 'x'),
        head + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + lines}) {
    RequestReader reader(limits, false);
    const auto read_all = [&] {
      bool is_head = false;
      for (size_t at = 0; at < endless.size();) {
        at += bring(reader, std::string_view(endless).substr(at, 700));
        is_head = is_head || reader.read_head();
        if (is_head && reader.read_body()) FAIL() << "it has no end";
      }
    };
    try {
      read_all();
      FAIL() << "nothing refuses it";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, 431);
    }
    EXPECT_LE(reader.capacity(), 140000u);  // pieces of 64 KiB, beside what is kept
  }
  RequestReader reader(limits, false);
  const std::string request = head + "\r\n";
  ASSERT_EQ(bring(reader, request), request.size());
  ASSERT_TRUE(reader.read_head() && reader.read_body());
  reader.take();
  std::string ahead;  // behind the request that is being answered
  while (ahead.size() < 50000) ahead += request;
  size_t taken = 0;
  while (reader.has_room()) taken += bring(reader, std::string_view(ahead).substr(taken));
  EXPECT_EQ(taken, 12000u);
  EXPECT_LE(reader.capacity(), 24000u);
  size_t requests = 0;
  for (reader.next(); reader.read_head() && reader.read_body(); reader.next()) ++requests, reader.take();
  EXPECT_EQ(requests, taken / request.size());
}

TEST(RequestReader, LetsGoOfWhatItHeld) {
  const Limits limits;
  RequestReader reader(limits, false);
  const std::string request = "POST / HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n" + std::string(2000000, ' ');
  bool head = false;
  for (size_t at = 0; !head || !reader.read_body();) {
    at += bring(reader, std::string_view(request).substr(at));
    head = head || reader.read_head();
  }
  EXPECT_EQ(reader.take().body.size(), 2000000u);
  reader.next();
  EXPECT_EQ(reader.capacity(), 0u);
}

}  // namespace
}  // namespace weft::serve::http

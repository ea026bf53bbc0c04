// Any bytes on a connection, in pieces of any size: they are requests within its limits or are refused with a status,
// and whoever may ask is told so. The first byte is the size of the pieces, the second says who asks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "serve/http/access.h"
#include "serve/http/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::serve::http;
  static const Limits limits = [] {
    Limits made;
    made.header_bytes = 512, made.body_bytes = 1024;
    return made;
  }();
  static const auto with_keys = [](std::vector<std::string> keys) {
    ServerOptions options;
    options.api_keys = std::move(keys);
    options.allowed_origins = {"https://example.org"};
    return options;
  };
  static const Access open(with_keys({})), closed(with_keys({"secret"}));
  if (size < 2) return 0;
  const size_t piece = 1 + data[0], total = size - 2;
  const uint8_t* bytes = data + 2;
  const Access& access = (data[1] & 2) != 0 ? closed : open;
  RequestReader reader(limits, (data[1] & 1) != 0);
  size_t at = 0;
  bool head = false;
  try {
    for (;;) {
      const boost::asio::mutable_buffer room = reader.room();
      const size_t brought = std::min({piece, total - at, room.size()});
      if (brought > 0) std::memcpy(room.data(), bytes + at, brought);
      reader.add(brought);
      at += brought;
      if (!head && reader.read_head()) {
        head = true;
        access.check(reader.head());
        access.headers_for(reader.head(), 204);
      }
      if (head && reader.read_body()) {
        const HttpRequest request = reader.take();
        if (request.body.size() > static_cast<size_t>(limits.body_bytes)) std::abort();
        if ((data[1] & 4) != 0)  // what has come behind it is read ahead
          while (at < total && reader.has_room()) {
            const boost::asio::mutable_buffer ahead = reader.room();
            const size_t more = std::min(total - at, ahead.size());
            std::memcpy(ahead.data(), bytes + at, more);
            reader.add(more);
            at += more;
          }
        reader.next();
        head = false;
      } else if (brought == 0) {
        if (at < total && !reader.has_room()) std::abort();  // nobody would go on
        return 0;
      }
    }
  } catch (const Failure& failure) {
    if (failure.status < 400 || failure.status > 499 || failure.json().empty()) std::abort();
  }
  return 0;
}

// A body of any bytes, to each route that reads one: it is refused with a status of its own, or read within its limits.
// The first byte says which route, and whether fields of no meaning are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "serve/http/api_request.h"
#include "serve/http/failure.h"
#include "weft/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::serve::http;
  static const weft::ModelFile file(WEFT_TEST_DATA "/stories260K.gguf");
  static const weft::Tokenizer tokenizer(file);
  static const weft::ChatTemplate chat_template(
      "{{ x }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  static const Prompter prompter{tokenizer, &chat_template};
  static const auto named = [](bool strict) {
    ServerOptions made;
    made.model_name = "stories";
    made.strict = strict;
    return made;
  };
  static const ServerOptions lenient = named(false), strict = named(true);
  if (size == 0) return 0;
  const ServerOptions& options = (data[0] & 4) != 0 ? strict : lenient;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0: read_chat(body, prompter, options); break;
      case 1: {
        const ApiRequest api = read_completion(body, prompter, options);
        int64_t choices = 0;
        for (const weft::serve::Request& request : api.requests) choices += request.n;
        if (choices > options.limits.n) std::abort();
        break;
      }
      case 2: read_tokenize(body, prompter, options); break;
      default: read_detokenize(body, options); break;
    }
  } catch (const Failure& failure) {
    if (failure.status < 400 || failure.status > 499 || failure.json().empty()) std::abort();
  } catch (const weft::Error&) {
  }
  return 0;
}

// A template of any bytes: it is refused with weft::Error, or renders within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/template/interpreter.h"
#include "models/template/parser.h"
#include "weft/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::jinja::Value context = weft::jinja::object_from_json(
      R"({"messages": [{"role": "user", "content": "Grüße <b> 12"}, {"role": "assistant", "content": null,
          "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, true]}}]}], "tools": [{"name": "f"}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "x": 3, "l": [3, 1, 2]})");
  try {
    const weft::jinja::Block block = weft::jinja::parse({reinterpret_cast<const char*>(data), size});
    weft::jinja::render(block, context, {.now = 1721995200, .max_steps = 50'000});
  } catch (const weft::Error&) {
  }
  return 0;
}

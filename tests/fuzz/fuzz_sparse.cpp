// Texts of sparse programs: whatever they are, parser, schedule and all passes end, in a result or in weft::Error; and
// what is printed reads back as it was.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sparse/compile.h"
#include "sparse/stage1/parse.h"
#include "weft/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::sparse;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParsedProgram parsed;
  try {
    parsed = parse_program(text);
  } catch (const weft::Error&) {
    return 0;
  }
  if (!(parse_program(to_text(parsed.stage1)).stage1 == parsed.stage1)) std::abort();
  if (!(parse_schedule(to_text(parsed.schedule)) == parsed.schedule)) std::abort();
  try {
    const Compilation made = run_passes(parsed, {});
    if (!(parse_stage2(to_text(made.compute2)) == made.compute2)) std::abort();
    if (!(weft::loop::parse_function(to_text(made.compute3)) == made.compute3.function)) std::abort();
  } catch (const weft::Error&) {
  }
  return 0;
}

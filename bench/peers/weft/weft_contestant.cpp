// weft_contestant [--ceilings]: serves rows (protocol.h) with Weft, or with what this machine can do at most.
#include <cstring>
#include <stdexcept>

#include "contestants.h"

namespace {

contest::Reading weft(const contest::json& row) {
  const std::string kind = row.at("kind");
  if (kind == "attention") return contest::weft_attention(row);
  if (kind == "linear") return contest::weft_linear(row);
  if (kind == "prefill" || kind == "decode") return contest::weft_model(row);
  throw std::invalid_argument("no row of kind " + kind);
}

}  // namespace

int main(int argc, char** argv) {
  const bool ceilings = argc == 2 && std::strcmp(argv[1], "--ceilings") == 0;
  return contest::serve(ceilings ? contest::ceiling : weft);
}

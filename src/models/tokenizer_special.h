// Finds tokens that are matched in the raw text before anything else: user-defined ones, and control tokens on request.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/tokenizer_vocabulary.h"

namespace weft {

// Thread-safe after construction. Keeps a reference to the texts.
class SpecialTokens {
 public:
  SpecialTokens(const TokenTexts& texts, std::vector<int32_t> ids);

  struct Match {
    size_t begin = 0, length = 0;
    int32_t id = -1;  // -1: none
  };
  // The first match at or after `from`, the longest of those that begin there.
  Match find(std::string_view text, size_t from) const;

 private:
  const TokenTexts& texts_;
  std::vector<int32_t> sorted_;            // by text
  std::array<int32_t, 257> first_byte_{};  // where the texts with a first byte begin in sorted_
};

}  // namespace weft

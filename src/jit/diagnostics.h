// What a compiler says about a generated text, cut down to what its author can act on.
#pragma once

#include <string>
#include <string_view>

namespace weft::jit {

// The errors in lines that a directive such as `#line 1 "variant CapAndBias"` names as the variant's own, with the
// numbered lines around the first; where there is none, the first errors of the generated text.
std::string explain_errors(std::string_view text, std::string_view messages);

}  // namespace weft::jit

// A format of a matrix, as a schedule or a call names it: parsed once, printed and compared as a value.
//
//   const Formats formats = parse_formats("hyb(1,0)");   // {Format{Format::Kind::hyb, {1, 0}}}
//   to_text(formats);                                    // "hyb(1, 0)"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sparse {

struct Format {
  enum class Kind : uint8_t { csr, csc, coo, dcsr, dia, ell, bsr, dbsr, sr_bcrs, hyb, defined };
  Kind kind = Kind::csr;
  std::vector<int64_t> numbers = {};  // as written: ell(width), bsr(block), sr_bcrs(t, g), hyb(c) or hyb(c, k)
  std::string name = {};              // of one that the program's text defines
  friend bool operator==(const Format&, const Format&) = default;
};
// In the order in which they take elements. None: the matrix stays as it is, in CSR.
using Formats = std::vector<Format>;

// One of the library's formats; nothing where none has that name and as many numbers.
std::optional<Format> format_named(std::string_view name, const std::vector<int64_t>& numbers);
// "csr(), csc(), coo(), ... and hyb(c, k)", for messages.
std::string known_formats();

// As parse_formats reads it; "csr" for none.
std::string to_text(const Format& format);
std::string to_text(const Formats& formats);
// "bsr(4), coo()", or "csr". Throws Error(invalid_argument) that names the text, the column and what is allowed.
Formats parse_formats(std::string_view text);
size_t hash_of(const Formats& formats);

}  // namespace weft::sparse

// Checks of the arrays that say where requests and their pages are, for everyone who reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

// Throws Error(invalid_indptr) unless it starts at 0 and never decreases. `of` stands before the name in messages.
void check_indptr(std::string_view of, std::string_view name, std::span<const int32_t> indptr);

// Where the first id is, of those from `first` on, that is not one of num_pages; ids.size() when there is none.
size_t find_bad_id(std::span<const int32_t> ids, size_t first, int64_t num_pages);

}  // namespace weft

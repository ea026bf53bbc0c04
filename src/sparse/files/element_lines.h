// Where a file has the elements that its reader lists, for messages about one of them.
#pragma once

#include <string_view>
#include <vector>

namespace weft::sparse {

// The line of each element of parse_matrix's list, or of parse_tensor's; none of triples as a matrix, where each place
// is listed once.
std::vector<int> lines_of_matrix(std::string_view name, std::string_view text);
std::vector<int> lines_of_tensor(std::string_view name, std::string_view text);

}  // namespace weft::sparse

// Weft's part in the comparison: one function a kind of row, and the ceilings that every row stands beside.
// Each takes a row as rows.py writes it and returns its reading; each throws where the row cannot be measured.
#pragma once

#include "protocol.h"
#include "weft/sparse.h"

namespace contest {

using nlohmann::json;

Reading weft_attention(const json& row);
Reading weft_plan(const json& row);
Reading weft_linear(const json& row);
Reading weft_spmm(const json& row);
Reading weft_blocks(const json& row);
Reading weft_rgms(const json& row);
Reading weft_graphsage(const json& row);
Reading weft_model(const json& row);

// A file that edges.py wrote: relation, row and column of each edge.
weft::sparse::CooTensor read_edges(const std::string& path);

// Seconds of a loop that only loads the rows which SpMM gathers.
Reading gather_ceiling(const json& row);

// Seconds that the row's bytes and operations take at least on this machine, as it is at the moment of the reading.
Reading ceiling(const json& row);

}  // namespace contest

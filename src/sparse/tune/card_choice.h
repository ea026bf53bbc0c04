// What SpMM and SDDMM can be run as on a card.
//
//   const std::vector<FormatChoice> all = candidates_on_card(*structure.data(), call);
#pragma once

#include <string>
#include <vector>

#include "sparse/operators/card.h"
#include "sparse/tune/choice.h"

namespace weft::sparse {

CardCut card_cut(const FormatChoice& choice);
// Whether SpMM runs as long_rows.h shares rows.
bool cuts_rows(const FormatChoice& choice);

// CSR, its rows in pieces where some are long.
FormatChoice likely_on_card(const Structure::Data& structure, const GatherCall& call);
// What a search on one structure tells of others: powers of two of rows and columns, of elements a row, and of how many
// times as long the longest row is.
std::string likeness_of(const Structure::Data& structure);
// Everything that a search tries, the likely one first, then others of CSR, then hyb of one partition, then of more:
// SpMM in CSR with whole rows and with rows in pieces of 16 to 128 elements, in hyb(c, k) of c in {1, 2, 4, 8, 16} and
// k from one below ceil(log2(nnz / rows)) to three above; SDDMM in CSR, 1 to 8 elements a thread; with other lengths of
// vectors, numbers of rows in a CTA, and gathers on their way.
std::vector<FormatChoice> candidates_on_card(const Structure::Data& structure, const GatherCall& call);

}  // namespace weft::sparse

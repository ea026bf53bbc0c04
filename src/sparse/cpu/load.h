// Code of the CPU: phases as functions of a shared object, run one after another by the team.
#pragma once

#include "sparse/backend.h"

namespace weft::sparse {

std::unique_ptr<const Loaded> load_on_cpu(const Compilation& made);

}  // namespace weft::sparse

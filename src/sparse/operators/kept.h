// Ready operators, compiled once a process for each schedule.
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::sparse {

// The operator of this program and schedule with these parameters fixed; compiled by the first who asks.
Operator kept_operator(const std::string& program, const std::string& schedule,
                       const std::map<std::string, int64_t>& set);

extern const char* const kSpmmProgram;
extern const char* const kSddmmProgram;
// How each runs fastest for rows of `feat` features; of a format, which is "" for the program's own.
std::string spmm_schedule(int64_t feat, const std::string& format);
std::string sddmm_schedule(int64_t feat);

}  // namespace weft::sparse

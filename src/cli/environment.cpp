#include "cli/environment.h"

#include <cstdlib>

#include "base/env.h"
#include "device/cpu/cpuid.h"
#include "weft/error.h"

namespace weft::cli {
namespace {

void check_variable(const env::Variable& variable) {
  variable.check();
  if (variable.name == "WEFT_ISA") current_isa();  // only the machine knows which of them it has
}

}  // namespace

void check_environment() {
  for (const env::Variable& variable : env::variables()) check_variable(variable);
}

std::vector<std::string> drop_bad_variables() {
  std::vector<std::string> wrong;
  for (const env::Variable& variable : env::variables()) {
    try {
      check_variable(variable);
    } catch (const Error& error) {
      wrong.emplace_back(error.what());
      unsetenv(std::string(variable.name).c_str());
    }
  }
  return wrong;
}

}  // namespace weft::cli

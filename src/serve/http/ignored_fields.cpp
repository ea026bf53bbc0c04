#include "serve/http/ignored_fields.h"

namespace weft::serve::http {
namespace {

constexpr size_t kMostNames = 256;

}  // namespace

void IgnoredFields::add(const std::set<std::string>& names) {
  if (names.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names)
    if (told_.size() < kMostNames && told_.insert(name).second) tell_(name);
}

}  // namespace weft::serve::http

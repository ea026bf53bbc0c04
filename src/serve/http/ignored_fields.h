// Names of fields that requests had and nobody reads: each is told once.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace weft::serve::http {

// Any thread may add. Of the first 256 names it is heard, of others no more: a client may think of any number.
class IgnoredFields {
 public:
  explicit IgnoredFields(std::function<void(const std::string& name)> tell) : tell_(std::move(tell)) {}
  void add(const std::set<std::string>& names);

 private:
  std::function<void(const std::string& name)> tell_;
  std::mutex mutex_;
  std::set<std::string> told_;
};

}  // namespace weft::serve::http

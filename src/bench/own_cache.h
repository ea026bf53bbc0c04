// A kernel cache of its own for the time of a benchmark: nothing is in it yet, and the user's stays as it is.
//
//   const OwnCache cache("bench jit");
#pragma once

#include <string>

namespace weft::bench {

class OwnCache {
 public:
  // Throws Error(io_error), which begins with `bench`, where no folder can be made.
  explicit OwnCache(const std::string& bench);
  ~OwnCache();
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_, before_;
};

}  // namespace weft::bench

// Where tests write: nothing of theirs stays among the temporary files.
#pragma once

#include <string>
#include <string_view>

namespace weft::testing {

// A fresh folder that goes with its owner, also when the test fails; and with its process where that leaves by exit()
// before its owner goes. A process that is forked leaves its parent's alone.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view bytes) const;  // returns the path

 private:
  std::string path_;
};

}  // namespace weft::testing
